//! Symbols of Swift: functions, methods, initializers, accessors, closures, and the parts of asynchronous ones.
//!
//! A symbol is a program for a machine with a stack: names are pushed, and operators make larger things of what is on
//! top. Types are only followed as far as it takes to get past them. What is not understood makes the whole symbol one
//! that is not.

mod identifier;

use identifier::Words;

/// The name that a symbol stands for, where it is understood.
pub(super) fn demangle(symbol: &str) -> Option<String> {
    let text = symbol.strip_prefix('_').unwrap_or(symbol);
    let text = text.strip_prefix("$s").or_else(|| text.strip_prefix("$S"))?;
    // What the compiler puts behind a dot is its own.
    let (text, suffix) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut machine =
        Machine { text: text.as_bytes(), at: 0, stack: Vec::new(), words: Words::default(), module: None };
    while machine.at < machine.text.len() {
        machine.step()?;
    }
    match machine.stack.as_slice() {
        [Node::Entity(name)] => Some(format!("{name}{suffix}")),
        _ => None,
    }
}

/// What is on the stack.
#[derive(Debug)]
enum Node {
    /// A name that belongs to nothing yet.
    Name(String),
    /// Something that has a whole name, and can have others in it: a module, a type, a function.
    Entity(String),
    /// A type that does not matter.
    Type,
    /// An empty list.
    Empty,
    /// Behind the first element of a list; as a label, that there is none.
    Mark,
}

struct Machine<'t> {
    text: &'t [u8],
    at: usize,
    stack: Vec<Node>,
    words: Words<'t>,
    /// The first name, which is the module's.
    module: Option<String>,
}

impl Machine<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn step(&mut self) -> Option<()> {
        if self.text.get(self.at)?.is_ascii_digit() {
            let name = self.words.identifier(self.text, &mut self.at)?;
            let is_module = self.stack.is_empty();
            if is_module {
                self.module.get_or_insert_with(|| name.clone());
            }
            self.stack.push(if is_module { Node::Entity(name) } else { Node::Name(name) });
            return Some(());
        }
        match self.next()? {
            b'A' => self.substitutions(),
            b'S' => self.standard(),
            b's' => self.push(Node::Entity("Swift".into())),
            b'y' => self.push(Node::Empty),
            b'_' => self.push(Node::Mark),
            b'x' => self.push(Node::Type),
            b'q' => {
                self.index()?;
                self.push(Node::Type)
            }
            // How a value is passed, that a function throws, and that there are generic parameters.
            b'z' | b'n' | b'h' | b'K' | b'l' => Some(()),
            b'Y' => match self.next()? {
                b'a' | b'b' | b'A' | b'T' => Some(()),
                b'c' => self.a_type(),
                _ => None,
            },
            b'C' | b'V' | b'O' | b'P' => self.member(),
            b't' => self.tuple(),
            b'p' => self.list().and_then(|()| self.push(Node::Type)),
            b'G' => self.bound(),
            b'c' => self.function_type(),
            b'X' => match self.next()? {
                b'E' | b'C' | b'K' => self.function_type(),
                b'p' | b'o' | b'w' | b'u' => Some(()),
                _ => None,
            },
            b'E' => self.pop_name().map(drop),
            b'L' => self.local(),
            b'F' => self.function(),
            b'f' => self.special(),
            b'v' => self.accessor(),
            b'Z' => self.rename(|name| format!("static {name}")),
            b'T' => self.thunk(),
            _ => None,
        }
    }

    fn push(&mut self, node: Node) -> Option<()> {
        self.stack.push(node);
        Some(())
    }

    /// Pops something that can be a type.
    fn a_type(&mut self) -> Option<()> {
        matches!(self.stack.pop()?, Node::Type | Node::Entity(_) | Node::Empty).then_some(())
    }

    /// A name, or the whole name of what stands for a context.
    fn pop_name(&mut self) -> Option<String> {
        match self.stack.pop()? {
            Node::Name(name) | Node::Entity(name) => Some(name),
            _ => None,
        }
    }

    fn pop_entity(&mut self) -> Option<String> {
        match self.stack.pop()? {
            Node::Entity(name) => Some(name),
            _ => None,
        }
    }

    fn rename(&mut self, to: impl FnOnce(String) -> String) -> Option<()> {
        let name = self.pop_entity()?;
        self.push(Node::Entity(to(name)))
    }

    /// `_` is 0, `0_` is 1, and so on.
    fn index(&mut self) -> Option<u64> {
        let mut number: Option<u64> = None;
        loop {
            match self.next()? {
                b'_' => return number.map_or(Some(0), |number| number.checked_add(1)),
                digit @ b'0'..=b'9' => {
                    let more = number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
                    number = Some(more);
                }
                _ => return None,
            }
        }
    }

    /// Things that were there before, each a letter, the last a large one or with an index. They are types: what
    /// matters comes first.
    fn substitutions(&mut self) -> Option<()> {
        // The first of what was there before.
        if let (Some(b'A'), Some(module)) = (self.text.get(self.at), &self.module) {
            self.stack.push(Node::Entity(module.clone()));
            self.at += 1;
            return Some(());
        }
        loop {
            match self.next()? {
                b'a'..=b'z' => self.stack.push(Node::Type),
                b'A'..=b'Z' | b'_' => return self.push(Node::Type),
                b'0'..=b'9' => {}
                _ => return None,
            }
        }
    }

    /// Types of the standard library that have names of one letter. A number says how often.
    fn standard(&mut self) -> Option<()> {
        let name = match self.next()? {
            digit @ b'2'..=b'9' => {
                (2..=digit - b'0').for_each(|_| self.stack.push(Node::Type));
                self.next()?;
                return self.push(Node::Type);
            }
            // An optional of what is there.
            b'g' => return self.a_type().and_then(|()| self.push(Node::Type)),
            b'c' => {
                self.next()?;
                return self.push(Node::Type);
            }
            b'o' => "__C",
            b'a' => "Swift.Array",
            b'b' => "Swift.Bool",
            b'D' => "Swift.Dictionary",
            b'd' => "Swift.Double",
            b'f' => "Swift.Float",
            b'h' => "Swift.Set",
            b'i' => "Swift.Int",
            b'J' => "Swift.Character",
            b'q' => "Swift.Optional",
            b'S' => "Swift.String",
            b's' => "Swift.Substring",
            b'u' => "Swift.UInt",
            b'A'..=b'Z' | b'a'..=b'z' => return self.push(Node::Type),
            _ => return None,
        };
        self.push(Node::Entity(name.into()))
    }

    /// A type in a module, or in another type.
    fn member(&mut self) -> Option<()> {
        let Node::Name(name) = self.stack.pop()? else { return None };
        match self.stack.pop()? {
            Node::Entity(outer) | Node::Name(outer) => self.push(Node::Entity(format!("{outer}.{name}"))),
            Node::Type => self.push(Node::Type),
            Node::Empty | Node::Mark => None,
        }
    }

    /// Pops a list: its first element is in front of the mark.
    fn list(&mut self) -> Option<()> {
        loop {
            match self.stack.pop()? {
                Node::Empty => return Some(()),
                Node::Mark => break,
                _ => {}
            }
        }
        // With its label, if it has one.
        match self.stack.pop()? {
            Node::Name(_) => self.a_type(),
            Node::Type | Node::Entity(_) | Node::Empty => Some(()),
            Node::Mark => None,
        }
    }

    fn tuple(&mut self) -> Option<()> {
        self.list()?;
        self.push(Node::Type)
    }

    /// A generic type with its arguments.
    fn bound(&mut self) -> Option<()> {
        while !matches!(self.stack.pop()?, Node::Empty) {}
        self.a_type()?;
        self.push(Node::Type)
    }

    fn function_type(&mut self) -> Option<()> {
        self.a_type()?;
        self.a_type()?;
        self.push(Node::Type)
    }

    /// What is declared in a function or in a file has a number or a discriminator beside its name.
    fn local(&mut self) -> Option<()> {
        match self.text.get(self.at)? {
            b'L' => {
                self.at += 1;
                self.pop_name()?;
                matches!(self.stack.last()?, Node::Name(_)).then_some(())
            }
            _ => self.index().map(drop),
        }
    }

    /// A name with labels, in what it belongs to.
    fn function(&mut self) -> Option<()> {
        let parameters = self.stack.pop()?;
        self.a_type()?;
        let (outer, mut names) = self.names()?;
        let Node::Name(name) = names.pop()? else { return None };
        let labels = names.iter().rev().map(|label| match label {
            Node::Name(label) => format!("{label}:"),
            _ => "_:".into(),
        });
        let labels: String = labels.collect();
        let labels = match (&parameters, labels.is_empty()) {
            (Node::Empty, _) => String::new(),
            (_, true) => "_:".into(),
            (_, false) => labels,
        };
        self.push(Node::Entity(format!("{outer}.{name}({labels})")))
    }

    /// Pops down to an entity, which comes first; then what was on it, the topmost first.
    fn names(&mut self) -> Option<(String, Vec<Node>)> {
        let mut names = Vec::new();
        loop {
            match self.stack.pop()? {
                // What is called like the module stands for it, too.
                Node::Entity(name) if self.is_module(&name) && matches!(self.stack.last(), Some(Node::Entity(_))) => {
                    names.push(Node::Name(name));
                }
                Node::Entity(outer) => return Some((outer, names)),
                Node::Type => return None,
                node => names.push(node),
            }
        }
    }

    fn is_module(&self, name: &str) -> bool {
        self.module.as_deref() == Some(name)
    }

    fn special(&mut self) -> Option<()> {
        match self.next()? {
            b'D' | b'd' => self.rename(|name| format!("{name}.deinit")),
            b'C' | b'c' => {
                self.a_type()?;
                let (outer, _) = self.names()?;
                self.push(Node::Entity(format!("{outer}.init")))
            }
            kind @ (b'U' | b'u') => {
                self.a_type()?;
                let number = self.index()?.checked_add(1)?;
                let implicit = if kind == b'u' { "implicit " } else { "" };
                self.rename(|name| format!("{implicit}closure #{number} in {name}"))
            }
            b'A' => {
                let number = self.index()?;
                self.rename(|name| format!("default argument {number} of {name}"))
            }
            _ => None,
        }
    }

    fn accessor(&mut self) -> Option<()> {
        let what = match self.next()? {
            b'g' => "getter",
            b's' => "setter",
            b'M' => "modify",
            b'r' => "read",
            b'w' => "willset",
            b'W' => "didset",
            _ => return None,
        };
        self.a_type()?;
        let (outer, mut names) = self.names()?;
        let Node::Name(name) = names.pop()? else { return None };
        names.is_empty().then_some(())?;
        self.push(Node::Entity(format!("{outer}.{name}.{what}")))
    }

    /// What the compiler makes beside a function.
    fn thunk(&mut self) -> Option<()> {
        match self.next()? {
            b'A' => self.rename(|name| format!("partial apply for {name}")),
            b'o' => self.rename(|name| format!("@objc {name}")),
            b'u' => self.rename(|name| format!("async function pointer to {name}")),
            b'm' => self.rename(|name| format!("merged {name}")),
            // For arguments that are known or not used: which, and what is returned.
            b'f' => {
                while self.next()? != b'_' {}
                self.next()?;
                self.rename(|name| format!("specialized {name}"))
            }
            kind @ (b'Y' | b'Q') => {
                let number = self.index()?;
                let what = if kind == b'Y' { "suspend" } else { "await" };
                self.rename(|name| format!("({number}) {what} resume partial function for {name}"))
            }
            _ => None,
        }
    }
}
