#!/usr/bin/env python3
"""A small object store for tests, in memory: what S3's clients rely on and no more.

PUT, GET, HEAD and DELETE of /KEY; GET /?prefix=P lists keys, as ListObjectsV2 does in XML. The port is written to the
file PORT. Objects whose key ends with a name of --spoil are kept with one bit changed the first time; --refuse N answers
the first N requests that write with 503.
"""
import argparse
import http.server
import os
import urllib.parse
from xml.sax.saxutils import escape

parser = argparse.ArgumentParser()
parser.add_argument("port_file")
parser.add_argument("--spoil", action="append", default=[])
parser.add_argument("--refuse", type=int, default=0)
arguments = parser.parse_args()
objects = {}


class Store(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def key(self):
        return urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")

    def answer(self, code, body=b"", with_body=True):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def do_PUT(self):
        body = bytearray(self.rfile.read(int(self.headers["Content-Length"])))
        if arguments.refuse > 0:
            arguments.refuse -= 1
            return self.answer(503)
        for name in arguments.spoil:
            if self.key().endswith(name):
                body[len(body) // 2] ^= 1
                arguments.spoil.remove(name)
                break
        objects[self.key()] = bytes(body)
        self.answer(200)

    def do_GET(self, with_body=True):
        prefix = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("prefix")
        if prefix:
            keys = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key])}</Size></Contents>\n"
                for key in sorted(objects)
                if key.startswith(prefix[0])
            )
            return self.answer(200, f"<ListBucketResult>\n{keys}</ListBucketResult>\n".encode(), with_body)
        if self.key() not in objects:
            return self.answer(404, with_body=with_body)
        self.answer(200, objects[self.key()], with_body)

    def do_HEAD(self):
        self.do_GET(with_body=False)

    def do_DELETE(self):
        objects.pop(self.key(), None)
        self.answer(204)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
with open(arguments.port_file + ".new", "w") as file:
    file.write(str(server.server_address[1]))
os.rename(arguments.port_file + ".new", arguments.port_file)
server.serve_forever()
