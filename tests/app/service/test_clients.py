"""Clients generated from the document, against the running service: each plans, gets a frontier, a diff, a replan and a problem."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.app.serving import ROOT
from tests.app.tools import NODE_MODULES, node_tool, python_tool

DOCUMENT = ROOT / "openapi" / "openapi.json"
AUCTION = ROOT / "openapi" / "examples" / "auction.json"

# What every client below prints at its end.
EXPECTED = ["watersmeet.plan/1 optimal", "frontier sorted", "diff same", "replan keep none 0", "problem 422 /query/streams/0/rate"]


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


PYTHON_CLIENT = """
import json, sys
from watersmeet_client import Client
from watersmeet_client.api.plans import diff, frontier, plan, replan
from watersmeet_client.models import ChangeKind, Diff, DiffRequest, Frontier, Plan, PlanRequest, Problem, Proof, Replan, ReplanRequest

url, file = sys.argv[1:]
client = Client(base_url=url, timeout=60.0)
request = PlanRequest.from_dict(json.load(open(file)))
made = plan.sync(client=client, body=request)
assert isinstance(made, Plan) and made.proof is Proof.OPTIMAL
print(made.format_, made.proof.value)
points = frontier.sync(client=client, body=request)
assert isinstance(points, Frontier) and len(points.points) > 1
cpus = [point.cpu for point in points.points]
print("frontier", "sorted" if cpus == sorted(cpus) else cpus)
difference = diff.sync(client=client, body=DiffRequest(before=made, after=points.points[0].plan))
assert isinstance(difference, Diff)
print("diff", "same" if difference.same_structure else difference.structure)
again = replan.sync(client=client, body=ReplanRequest(plan=made, request=request))
assert isinstance(again, Replan) and again.kind is ChangeKind.NONE
print("replan", again.decision.value, again.kind.value, round(again.gain))
request.query.streams[0].rate = -1.0
refused = plan.sync(client=client, body=request)
assert isinstance(refused, Problem) and isinstance(refused.errors, list)
print("problem", refused.status, refused.errors[0].pointer)
"""


def test_a_generated_python_client_works_and_is_typed(service: httpx.Client, tmp_path: Path) -> None:
    generator = python_tool("openapi-python-client")
    path = f"{Path(generator).parent}:{os.environ['PATH']}"  # it formats what it makes with the ruff beside it
    said = run(
        generator,
        "generate",
        "--path",
        str(DOCUMENT),
        "--meta",
        "none",
        "--output-path",
        str(tmp_path / "watersmeet_client"),
        cwd=tmp_path,
        PATH=path,
    )
    assert "arning" not in said, said
    (tmp_path / "use.py").write_text(PYTHON_CLIENT)
    python = str(Path(generator).parent / "python")
    assert run(python, "use.py", str(service.base_url), str(AUCTION), cwd=tmp_path).splitlines() == EXPECTED
    names = {file.stem for file in (tmp_path / "watersmeet_client" / "models").glob("*.py")}
    assert not [name for name in names if name.endswith(("_input", "_output")) or any(letter.isdigit() for letter in name)]
    assert "http_validation_error" not in names
    operations = [file for file in (tmp_path / "watersmeet_client" / "api").rglob("*.py") if file.stem != "__init__"]
    for operation in operations:
        assert "Problem" in operation.read_text(), f"{operation.stem} does not type its errors"


TYPESCRIPT_CLIENT = """
import createClient from "openapi-fetch";
import { readFileSync } from "node:fs";
import type { components, paths } from "./schema";

type PlanRequest = components["schemas"]["PlanRequest"];
type Problem = components["schemas"]["Problem"];
type ReplanRequest = components["schemas"]["ReplanRequest"];

async function main(url: string, file: string): Promise<void> {
  const client = createClient<paths>({ baseUrl: url });
  const request: PlanRequest = JSON.parse(readFileSync(file, "utf-8"));
  const made = await client.POST("/v1/plans", { body: request });
  if (made.data === undefined) throw new Error(made.error.detail);
  const proof: "optimal" | "bounded" | "none" = made.data.proof;
  console.log(made.data.format, proof);
  const frontier = await client.POST("/v1/frontiers", { body: request });
  if (frontier.data === undefined) throw new Error(frontier.error.detail);
  const points = frontier.data.points;
  if (points.length < 2) throw new Error("one point");
  console.log("frontier", points.every((point, i) => i === 0 || points[i - 1]!.cpu <= point.cpu) ? "sorted" : "unsorted");
  const diff = await client.POST("/v1/diffs", { body: { before: made.data, after: points[0]!.plan } });
  if (diff.data === undefined) throw new Error(diff.error.detail);
  console.log("diff", diff.data.same_structure ? "same" : diff.data.structure);
  const measured = { output_rate: made.data.cost.output_rate, cpu: made.data.cost.cpu, memory_bytes: made.data.cost.memory_bytes };
  const asked: ReplanRequest = { plan: made.data, request, measured, thresholds: { error: 0.05, gain: 0.05 }, horizon: 60 };
  const again = await client.POST("/v1/replans", { body: asked });
  if (again.data === undefined) throw new Error(again.error.detail);
  const kind: "none" | "orders" | "caches" | "allocation" | "tree" = again.data.kind;
  console.log("replan", again.data.decision, kind, again.data.gain);
  request.query.streams[0]!.rate = -1;
  const refused = await client.POST("/v1/plans", { body: request });
  const problem: Problem | undefined = refused.error;
  if (problem === undefined) throw new Error("not refused");
  console.log("problem", problem.status, problem.errors?.[0]?.pointer);
}

main(process.argv[2]!, process.argv[3]!).catch((error) => { console.error(error); process.exit(1); });
"""

TYPESCRIPT_OPTIONS = {
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "target": "es2022",
    "module": "commonjs",
    "moduleResolution": "node10",
    "types": ["node"],
    "outDir": "out",
}


def test_a_generated_typescript_client_works_and_is_typed(service: httpx.Client, tmp_path: Path) -> None:
    run(node_tool("openapi-typescript"), str(DOCUMENT), "--output", "schema.ts", cwd=tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / "use.ts").write_text(TYPESCRIPT_CLIENT)
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": TYPESCRIPT_OPTIONS, "files": ["use.ts", "schema.ts"]}))
    run(node_tool("tsc"), "--project", ".", cwd=tmp_path)
    assert run("node", "out/use.js", str(service.base_url), str(AUCTION), cwd=tmp_path).splitlines() == EXPECTED


JAVA_CLIENT = """
import java.nio.file.*;
import java.util.*;
import watersmeet.*;
import watersmeet.api.PlansApi;
import watersmeet.model.*;

public class Use {
  public static void main(String[] arguments) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(arguments[0]);
    PlansApi api = new PlansApi(client);
    PlanRequest request = client.getObjectMapper().readValue(Files.readString(Path.of(arguments[1])), PlanRequest.class);
    Plan made = api.plan(request);
    System.out.println(made.getFormat().getValue() + " " + made.getProof().getValue());
    List<FrontierPoint> points = api.frontier(request).getPoints();
    boolean sorted = points.size() > 1;
    for (int i = 1; i < points.size(); i++) sorted &= points.get(i - 1).getCpu().doubleValue() <= points.get(i).getCpu().doubleValue();
    System.out.println("frontier " + (sorted ? "sorted" : "unsorted"));
    Diff diff = api.diff(new DiffRequest().before(made).after(points.get(0).getPlan()));
    System.out.println("diff " + (diff.getSameStructure() ? "same" : diff.getStructure()));
    Replan again = api.replan(new ReplanRequest().plan(made).request(request));
    long gain = Math.round(again.getGain().doubleValue());
    System.out.println("replan " + again.getDecision().getValue() + " " + again.getKind().getValue() + " " + gain);
    request.getQuery().getStreams().get(0).setRate(RATE);
    try {
      api.plan(request);
    } catch (ApiException refused) {
      Problem problem = client.getObjectMapper().readValue(refused.getResponseBody(), Problem.class);
      System.out.println("problem " + problem.getStatus() + " " + problem.getErrors().get(0).getPointer());
    }
  }
}
"""
JAVA_LIBRARIES = ("jackson-core-", "jackson-annotations-", "jackson-databind-", "jackson-datatype-jsr310-", "jakarta.annotation-api-")


@pytest.mark.skipif(shutil.which("javac") is None, reason="a Java runtime alone, as PyPI has it, compiles no client; a JDK does")
def test_a_generated_java_client_compiles_and_works(service: httpx.Client, tmp_path: Path) -> None:
    import pyspark  # its jars hold the libraries that the generated client needs

    properties = (
        "library=native,openApiNullable=false,useJakartaEe=true,invokerPackage=watersmeet,apiPackage=watersmeet.api,modelPackage=watersmeet.model"
    )
    generator = (
        python_tool("openapi-generator-cli"),
        "generate",
        "-g",
        "java",
        "-i",
        str(DOCUMENT),
        "-o",
        "java",
        f"--additional-properties={properties}",
    )
    run(*generator, "--global-property=apis,models,supportingFiles,apiTests=false,modelTests=false,apiDocs=false,modelDocs=false", cwd=tmp_path)
    jars = [str(jar) for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")) if jar.name.startswith(JAVA_LIBRARIES)]
    stream = (tmp_path / "java" / "src" / "main" / "java" / "watersmeet" / "model" / "Stream.java").read_text()
    rate = 'new java.math.BigDecimal("-1")' if "setRate(@jakarta.annotation.Nonnull BigDecimal" in stream else "-1.0"
    (tmp_path / "Use.java").write_text(JAVA_CLIENT.replace("RATE", rate))
    sources = [str(file) for file in sorted((tmp_path / "java" / "src" / "main" / "java").rglob("*.java"))]
    run("javac", "-nowarn", "-d", "out", "-cp", ":".join(jars), "Use.java", *sources, cwd=tmp_path)
    said = run("java", "-cp", ":".join(["out", *jars]), "Use", str(service.base_url), str(AUCTION), cwd=tmp_path)
    assert said.splitlines() == EXPECTED


def test_spectral_finds_nothing_to_say_of_the_document(tmp_path: Path) -> None:
    (tmp_path / ".spectral.json").write_text(json.dumps({"extends": "spectral:oas", "rules": {"info-contact": "off"}}))
    run(node_tool("spectral"), "lint", str(DOCUMENT), "--ruleset", ".spectral.json", "--fail-severity", "hint", "--quiet", cwd=tmp_path)
