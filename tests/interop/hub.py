"""A stand-in for the Hugging Face Hub on this machine: repositories with files, over HTTP."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0" * 40


class Hub(ThreadingHTTPServer):
    """Takes uploads and serves them; `files` has the contents by repository and name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, dict[str, bytes]] = {}
        self.address = f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    """The parts of the protocol that uploads and downloads of small files need."""

    server: Hub

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            name = json.loads(body)
            name = "/".join(filter(None, (name.get("organization") or "me", name["name"])))
            self.server.files.setdefault(name, {})
            self.reply({"url": f"{self.server.address}/{name}", "name": name, "id": name})
        elif self.path == "/api/validate-yaml":
            self.reply({"errors": [], "warnings": []})
        elif self.path.endswith("/preupload/main"):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self.reply({"files": files})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/main", self.path):
            entries = [json.loads(line) for line in body.splitlines()]
            for entry in entries:
                if entry["key"] == "file":
                    content = base64.b64decode(entry["value"]["content"])
                    self.server.files[found[1]][entry["value"]["path"]] = content
            url = f"{self.server.address}/{found[1]}/commit/{COMMIT}"
            self.reply({"success": True, "commitOid": COMMIT, "commitUrl": url})
        else:
            self.reply({"error": self.path}, 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if found := re.fullmatch(r"/(.+)/resolve/[^/]+/(.+)", self.path):
            content = self.server.files.get(found[1], {}).get(found[2])
            code = "RepoNotFound" if found[1] not in self.server.files else "EntryNotFound"
            if content is None:
                self.reply({}, 404, {"X-Error-Code": code})
            else:
                self.reply(content)
        elif found := re.match(r"/api/models/([^/]+/[^/]+)", self.path):
            files = self.server.files.get(found[1], {})
            if "/tree/" in self.path:
                self.reply([{"type": "file", "path": n, "size": len(files[n])} for n in files])
            else:
                names = [{"rfilename": name} for name in files]
                self.reply({"id": found[1], "sha": COMMIT, "siblings": names, "tags": []})
        else:
            self.reply({}, 404)

    def reply(self, body: object, status: int = 200, headers: dict[str, str] | None = None):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        known = {"Content-Length": str(len(content)), "X-Repo-Commit": COMMIT}
        known["ETag"] = f'"{sha1(content).hexdigest()}"'
        for name, value in {**known, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def stand_in() -> Iterator[Hub]:
    """A running hub."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
