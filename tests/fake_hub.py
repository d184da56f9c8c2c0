"""A hub on loopback: as much of the Hugging Face hub as a download and an upload need."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test"


class Hub(ThreadingHTTPServer):
    """Repositories by name; each is a list of versions, the last of which is `main`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, list[dict[str, bytes]]] = {}
        self.sizes: dict[str, int] = {}  # what the hub says of a file, if it lies
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repository: str, number: int) -> str:
        return hashlib.sha1(f"{repository} {number}".encode()).hexdigest()

    def version(self, repository: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        versions = self.repositories.get(repository, [])
        for number, files in reversed(list(enumerate(versions))):
            commit = self.commit(repository, number)
            if revision in ("main", commit, f"v{number}"):
                return commit, files
        return None


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def tell(self, data: Any) -> None:
        self.answer(200, json.dumps(data).encode(), Content_Type="application/json")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self.server.requests.append(f"{self.command} {'/'.join(parts)}")
        api = parts[:2] == ["api", "models"]
        owner, name, *rest = parts[2:] if api else parts
        repository = f"{owner}/{name}"
        if repository not in self.server.repositories:
            self.answer(404, X_Error_Code="RepoNotFound")
            return
        found = self.server.version(repository, rest[1] if len(rest) > 1 else "main")
        if found is None:
            self.answer(404, X_Error_Code="RevisionNotFound")
            return
        commit, files = found
        size = {name: self.server.sizes.get(name, len(files[name])) for name in files}
        if api and rest[:1] == ["tree"]:
            oid = {name: hashlib.sha1(files[name]).hexdigest() for name in files}
            self.tell([{"type": "file", "path": name, "size": size[name], "oid": oid[name]}
                       for name in files])  # fmt: skip
        elif api:
            siblings = [{"rfilename": name, "size": size[name]} for name in files]
            self.tell({"id": repository, "sha": commit, "siblings": siblings})
        elif rest[2] in files:
            body = files[rest[2]]
            etag = f'"{hashlib.sha1(body).hexdigest()}"'
            self.answer(200, body, ETag=etag, X_Repo_Commit=commit)
        else:
            self.answer(404, X_Error_Code="EntryNotFound")

    def do_POST(self) -> None:
        parts = urlsplit(self.path).path.strip("/").split("/")
        self.server.requests.append(f"POST {'/'.join(parts)}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401)
        elif parts == ["api", "repos", "create"]:
            wanted = json.loads(body)
            repository = f"{wanted['organization']}/{wanted['name']}"
            self.server.repositories.setdefault(repository, [])
            self.tell({"url": f"{self.server.address}/{repository}"})
        elif parts == ["api", "validate-yaml"]:
            self.tell({"errors": [], "warnings": []})
        elif "preupload" in parts:
            files = json.loads(body)["files"]
            self.tell({"files": [{"path": file["path"], "uploadMode": "regular",
                                  "shouldIgnore": False} for file in files]})  # fmt: skip
        elif "commit" in parts:
            lines = [json.loads(line) for line in body.splitlines()]
            files = {line["value"]["path"]: base64.b64decode(line["value"]["content"])
                     for line in lines if line["key"] == "file"}  # fmt: skip
            repository = "/".join(parts[2:4])
            versions = self.server.repositories[repository]
            versions.append({**(versions[-1] if versions else {}), **files})
            oid = self.server.commit(repository, len(versions) - 1)
            self.tell({"commitUrl": f"{self.server.address}/{repository}/commit/{oid}",
                       "commitOid": oid, "success": True})  # fmt: skip
        else:
            self.answer(404)
