"""One request to a server, from inside a network namespace: ask.py URL JSON prints the text of the answer, or of the stream."""
import json
import sys
import urllib.request

url, body = sys.argv[1], json.loads(sys.argv[2])
request = urllib.request.Request(url + "/v1/chat/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
text = ""
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300) as answer:
    if not body.get("stream"):
        text = json.loads(answer.read())["choices"][0]["message"]["content"]
    for line in answer:
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            text += choices[0]["delta"].get("content") or "" if choices else ""
print(json.dumps(text))
