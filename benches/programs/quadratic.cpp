// Removes duplicates from a vector by comparing each with each, with the standard library's own small functions: what a C++
// program looks like that nobody has optimised. Compiled without inlining.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

int main(int count, char **arguments) {
    unsigned long number = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 1000;
    std::vector<std::string> all, found;
    for (unsigned long i = 0; i < number; i++) {
        all.push_back(std::to_string(i * 7919 % number));
    }
    for (const std::string &one : all) {
        if (std::find(found.begin(), found.end(), one) == found.end()) {
            found.push_back(one);
        }
    }
    std::printf("%zu\n", found.size());
    return 0;
}
