"""A receiver of OTLP, from the messages that OpenTelemetry publishes, which answers as it is told to.

It prints the ports that it listens on, for HTTP and for gRPC, and then writes each request that it takes to a file, as a
line of JSON. The answers to the first requests are given: statuses of HTTP (for gRPC, of the same meaning), `reject` to
take all spans of a request but one, or `slow` to take half a second; whatever comes then is taken. Where the environment has
`TLS_CERTIFICATE` and `TLS_KEY`, which are files, it encrypts.
"""

import gzip
import http.server
import json
import os
import ssl
import sys
import threading
import time
from concurrent import futures

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

CODES = {"401": grpc.StatusCode.UNAUTHENTICATED, "404": grpc.StatusCode.UNIMPLEMENTED,
         "503": grpc.StatusCode.UNAVAILABLE, "400": grpc.StatusCode.INVALID_ARGUMENT}


class Requests:
    def __init__(self, path, token, answers):
        self.file, self.token, self.answers = open(path, "a", buffering=1), token, answers
        self.lock = threading.Lock()

    def answer(self, authorization):
        with self.lock:
            if self.token and authorization != f"Bearer {self.token}":
                return "401"
            return self.answers.pop(0) if self.answers else "200"

    def take(self, request, answer):
        """Returns the response."""
        if answer == "slow":
            time.sleep(0.5)
        response = trace_service_pb2.ExportTraceServiceResponse()
        if answer == "reject":
            response.partial_success.rejected_spans = 1
            response.partial_success.error_message = "too old"
        with self.lock:
            self.file.write(json.dumps(MessageToDict(request)) + "\n")
        return response


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = self.server.requests.answer(self.headers["authorization"])
        if self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
            answer = "404"
        if answer.isdigit() and answer != "200":
            return self.reply(int(answer), "text/plain", b"told to")
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        response = self.server.requests.take(request, answer)
        self.reply(200, "application/x-protobuf", response.SerializeToString())

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Service(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, requests):
        self.requests = requests

    def Export(self, request, context):
        answer = self.requests.answer(dict(context.invocation_metadata()).get("authorization"))
        if answer in CODES:
            context.abort(CODES[answer], "told to")
        return self.requests.take(request, answer)


def main():
    path, http_port, grpc_port, token, *answers = sys.argv[1:]
    requests = Requests(path, token, answers)
    web = http.server.ThreadingHTTPServer(("127.0.0.1", int(http_port)), Handler)
    web.requests = requests
    calls = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(requests), calls)
    address = f"127.0.0.1:{grpc_port}"
    if "TLS_CERTIFICATE" in os.environ:
        files = os.environ["TLS_CERTIFICATE"], os.environ["TLS_KEY"]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        web.socket = context.wrap_socket(web.socket, server_side=True)
        certificate, key = (open(file, "rb").read() for file in files)
        grpc_port = calls.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
    else:
        grpc_port = calls.add_insecure_port(address)
    calls.start()
    print(web.server_port, grpc_port, flush=True)
    web.serve_forever()


main()
