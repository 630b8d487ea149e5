#!/usr/bin/env python3
"""The Helm chart and the plain manifests: forms, probes, the end of a pod, and that both say the same.

Core objects are held against Kubernetes' own schemas (kubernetes-validate, strict), LeaderWorkerSet and InferencePool against the fields that we use. The
arguments of the server's container are given to the server itself, with --check.

usage: test_manifests.py PROGRAM [--write]      last line: "N passed, N failed[, N skipped]"
--write: writes packaging/kubernetes from the chart
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "ranks")]
from counting import HANG, check, finish, skip  # noqa: E402
from group import Process, end_all, environment, free_port  # noqa: E402

try:
    import kubernetes_validate
    import yaml
    from chart import Chart, Unknown
except ImportError as e:
    skip(f"{e.name} of tests/requirements.txt is not installed")
    finish()

VERSIONS = ("1.29", "1.33", "1.37")
GROUP = {"group.size": 2, "model.name": "/models/llama-3.1-405b", "model.download": False}
PLAIN = {"replicas.yaml": {}, "groups.yaml": GROUP}
ALL = {"autoscaling.enabled": True, "inferencePool.enabled": True, "server.apiKeySecret": "keys", "model.hubTokenSecret": "hub", "model.storageClass": "fast",
       "nodeSelector": {"gpu": "h200"}, "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]}
CASES = {"as it is": {}, "groups": GROUP, "everything": ALL, "everything, in groups": {**ALL, **GROUP}, "on the CPU": {"gpus": 0, "server.args": []}}
TEXT, NUMBER = str, int
POD = "a pod's template"  # held against the schema of Pod
# Of objects that are not Kubernetes' own: the fields that we use. A tuple: one of these words.
FORMS = {
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): {
        "replicas": NUMBER, "startupPolicy": ("LeaderCreated", "LeaderReady"),
        "rolloutStrategy": {"type": ("RollingUpdate",), "rollingUpdateConfiguration": {"maxUnavailable": NUMBER, "maxSurge": NUMBER}},
        "leaderWorkerTemplate": {"size": NUMBER, "restartPolicy": ("RecreateGroupOnPodRestart", "None"), "leaderTemplate": POD, "workerTemplate": POD}},
    ("inference.networking.k8s.io/v1", "InferencePool"): {
        "selector": {"matchLabels": dict}, "targetPorts": [{"number": NUMBER}],
        "endpointPickerRef": {"name": TEXT, "port": {"number": NUMBER}, "failureMode": ("FailOpen", "FailClose")}},
}


def faults_of_core(o, version):
    try:
        kubernetes_validate.validate(o, version, strict=True)
        return []
    except kubernetes_validate.ValidationError as e:
        return [f"{'.'.join(map(str, e.path))}: {e.message}"]
    except kubernetes_validate.SchemaNotFoundError as e:
        return [e.message]


def faults(value, form, path="spec"):
    """What is wrong with the fields of an object by one of FORMS."""
    if form == POD:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **value["metadata"]}, "spec": value["spec"]}
        return [f"{path}: {f}" for f in faults_of_core(pod, VERSIONS[-1])]
    if isinstance(form, list):
        return [f for i, item in enumerate(value) for f in faults(item, form[0], f"{path}[{i}]")] if isinstance(value, list) and value else [f"{path} is no list"]
    if isinstance(form, dict):
        if not isinstance(value, dict) or set(value) != set(form):
            return [f"{path} has {value if not isinstance(value, dict) else sorted(value)}, not {sorted(form)}"]
        return [f for key in form for f in faults(value[key], form[key], f"{path}.{key}")]
    if isinstance(form, tuple):
        return [] if value in form else [f"{path} is {value}, not one of {form}"]
    return [] if type(value) is form else [f"{path} is {value!r}, not of {form.__name__}"]


def check_forms(name, objects):
    for o in objects:
        form = FORMS.get((o["apiVersion"], o["kind"]))
        wrong = faults(o["spec"], form) if form else [f for v in VERSIONS for f in faults_of_core(o, v)]
        check(not wrong, f"{name}: {o['kind']}: {wrong}")


def pods(objects):
    """(template, size of the group) of everything that has pods; those that serve first."""
    for o in objects:
        if o["kind"] == "Deployment":
            yield o["spec"]["template"], 1
        if o["kind"] == "LeaderWorkerSet":
            yield o["spec"]["leaderWorkerTemplate"]["leaderTemplate"], o["spec"]["leaderWorkerTemplate"]["size"]
            yield o["spec"]["leaderWorkerTemplate"]["workerTemplate"], o["spec"]["leaderWorkerTemplate"]["size"]


def check_life(name, objects):
    """What the schemas do not know: selectors find the pods that serve; ports, volumes and times fit."""
    templates = list(pods(objects))
    (serving, _), workers = templates[0], [t for t, _ in templates[1:]]
    labels = serving["metadata"]["labels"]
    for o in objects:
        wants = {"Service": lambda: o["spec"]["selector"], "PodDisruptionBudget": lambda: o["spec"]["selector"]["matchLabels"], "InferencePool": lambda: o["spec"]["selector"]["matchLabels"],
                 "Deployment": lambda: o["spec"]["selector"]["matchLabels"]}.get(o["kind"])
        if wants:
            check(wants().items() <= labels.items() and not any(wants().items() <= w["metadata"]["labels"].items() for w in workers), f"{name}: {o['kind']} selects those that serve: {wants()}")
    box = serving["spec"]["containers"][0]
    port = box["ports"][0]["containerPort"]
    check(box["args"][box["args"].index("--port") + 1] == str(port), f"{name}: the port {port} of {box['args']}")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        check(box[probe]["httpGet"] == {"path": "/health", "port": "http"}, f"{name}: {probe} {box[probe]}")
    check(not any("readinessProbe" in c or "ports" in c for w in workers for c in w["spec"]["containers"]), f"{name}: workers serve nothing")
    drain, before = int(box["args"][box["args"].index("--drain-timeout") + 1]), int(box["lifecycle"]["preStop"]["exec"]["command"][1])
    check(serving["spec"]["terminationGracePeriodSeconds"] > drain + before, f"{name}: a pod has {serving['spec']['terminationGracePeriodSeconds']} s for {before} + {drain}")
    for template, size in templates:
        spec = template["spec"]
        mounts = {m["name"] for c in spec["containers"] + spec.get("initContainers", []) for m in c["volumeMounts"]}
        check(mounts == {v["name"] for v in spec["volumes"]}, f"{name}: volumes {mounts}")
        names = [e["name"] for e in spec["containers"][0]["env"]]
        check({"MASTER_ADDR", "WORLD_SIZE", "RANK"} <= set(names) if size > 1 else "RANK" not in names, f"{name}: ranks {names}")
        check(len(names) == len(set(names)), f"{name}: variables once each: {names}")


def check_arguments(program, name, objects, folder):
    """The server reads its arguments, and has nothing to say against them."""
    args = list(pods(objects))[0][0]["spec"]["containers"][0]["args"]
    args = [os.path.join(folder, "keys") if a == "/keys/keys" else "built-in" if args[i - 1] == "--model" else a for i, a in enumerate(args)]
    r = subprocess.run([program, *args, "--check"], capture_output=True, text=True, timeout=HANG, check=False, env={**os.environ, "MLXCEL_HOME": folder})
    check(r.returncode == 0, f"{name}: {' '.join(args)}: {r.stderr}")


def start_pod(program, template, rank, port, folder):
    """The server's container as a process: its arguments and its variables, with what a cluster fills in."""
    box = template["spec"]["containers"][0]
    args = [{"--model": "built-in", "--host": "127.0.0.1", "--port": "0"}.get(box["args"][i - 1], a) for i, a in enumerate(box["args"])]
    env = {}
    for e in box["env"]:
        by_cluster = {"fieldRef": str(rank), "secretKeyRef": "what the Secret holds"}
        env[e["name"]] = e["value"].replace("$(LWS_LEADER_ADDRESS)", "127.0.0.1") if "value" in e else by_cluster[next(iter(e["valueFrom"]))]
    env.update(MASTER_PORT=str(port), MLXCEL_HOME=folder)  # others may have the usual one here
    return Process([program, *args, "--threads", "1"], {**environment(MLXCEL_JOB_SECRET=""), **env})


def check_group(program, chart, folder):
    """The pods of a group, as their templates start them, serve together, and end when they are told to."""
    port = free_port()
    ranks = [start_pod(program, template, r, port, folder) for r, (template, _) in enumerate(pods(chart.objects("mlxcel", GROUP)))]
    ready = ranks[0].json_line()
    check(ready, f"a group serves: {[p.said() for p in ranks]}")
    if ready:
        with urllib.request.urlopen(ready["url"] + "/health", timeout=HANG) as answer:
            check(answer.status == 200, "the leader's probe")
    for p in reversed(ranks):
        p.kill(signal.SIGTERM)
    codes = [p.wait() for p in ranks]
    check(codes == [0, 0], f"a group ends: {codes} {[p.said()[-500:] for p in ranks]}")
    end_all(ranks)


def check_container():
    """The image's user and port are those of the pods."""
    with open(os.path.join(ROOT, "packaging/Containerfile"), encoding="utf-8") as f:
        text = f.read()
    spec = list(pods(Chart(os.path.join(ROOT, "packaging/helm/mlxcel")).objects("mlxcel", {})))[0][0]["spec"]
    check(re.search(r"--uid (\d+)", text)[1] == str(spec["securityContext"]["runAsUser"]), "the user of the image")
    check(re.search(r"EXPOSE (\d+)", text)[1] == str(spec["containers"][0]["ports"][0]["containerPort"]), "the port of the image")
    check('ENTRYPOINT ["mlxcel"]' in text and spec["containers"][0]["args"][0] == "serve", "the image's program takes the arguments")
    with open(os.path.join(ROOT, "VERSION"), encoding="utf-8") as f, open(os.path.join(ROOT, "packaging/helm/mlxcel/Chart.yaml"), encoding="utf-8") as c:
        version, facts = f.read().strip(), yaml.safe_load(c)
    check(facts["version"] == facts["appVersion"] == version == Chart(os.path.join(ROOT, "packaging/helm/mlxcel")).values["image"]["tag"], f"one version: {version} {facts}")


def check_faults(chart):
    """Spoilt objects are seen: a field that is not there, a wrong type, inside a pod's template too."""
    for spoil in (lambda s: s.update(replica=4), lambda s: s.update(replicas="four"), lambda s: s["template"]["spec"]["containers"][0].update(readynessProbe={})):
        core = next(o for o in chart.objects("mlxcel", {}) if o["kind"] == "Deployment")
        spoil(core["spec"])
        check(faults_of_core(core, VERSIONS[0]), "a spoilt Deployment")
    form = FORMS["leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"]
    for spoil in (lambda s: s.update(replica=4), lambda s: s["leaderWorkerTemplate"].update(size="2"), lambda s: s["leaderWorkerTemplate"].update(restartPolicy="Always"),
                  lambda s: s["leaderWorkerTemplate"]["workerTemplate"]["spec"].update(containers="none")):
        spec = next(o for o in chart.objects("mlxcel", GROUP) if o["kind"] == "LeaderWorkerSet")["spec"]
        spoil(spec)
        check(len(faults(spec, form)) == 1, f"a spoilt LeaderWorkerSet: {faults(spec, form)}")


def check_renderer():
    """Faults of a chart are seen."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "templates"))
        for template, word in (("{{ .Values.b }}", "Values.b"), ("{{ if .Values.a }}", "end"), ("{{ with .Values.a }}{{ end }}", "with"), ("{{ upper .Values.a }}", "upper"), ("{{ .Values.a .Values.a }}", "Values.a")):
            for name, text in (("values.yaml", "a: 1\n"), ("templates/x.yaml", template)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
            try:
                check(False, f"{template} is rendered: {Chart(folder).objects('x', {})}")
            except Unknown as e:
                check(word in str(e), f"{template}: {e}")


def main():
    program, chart = os.path.abspath(sys.argv[1]), Chart(os.path.join(ROOT, "packaging/helm/mlxcel"))
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "keys"), "w", encoding="utf-8") as f:
            f.write("key\n")
        for name, changes in CASES.items():
            objects = chart.objects("mlxcel", changes)
            check_forms(name, objects)
            check_life(name, objects)
            check_arguments(program, name, objects, folder)
        check_group(program, chart, folder)
    for name, changes in PLAIN.items():
        path = os.path.join(ROOT, "packaging/kubernetes", name)
        objects = chart.objects("mlxcel", changes)
        if "--write" in sys.argv:
            head = f"# {'Replicas' if name == 'replicas.yaml' else 'Groups of machines'} of mlxcel-server without Helm: kubectl apply -f {name}\n# Written from packaging/helm/mlxcel by tests/scale/test_manifests.py --write.\n"
            with open(path, "w", encoding="utf-8") as f:
                f.write(head + yaml.safe_dump_all(objects, sort_keys=False, width=150))
        with open(path, encoding="utf-8") as f:
            plain = list(yaml.safe_load_all(f))
        check(plain == objects, f"{name} is what the chart says")
        check_forms(name, plain)
    check_faults(chart)
    check_container()
    check_renderer()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
