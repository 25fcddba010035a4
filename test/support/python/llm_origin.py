"""An API of language models on FastAPI, as many servers of models are built. It keeps an account of what each consumer has cost."""

import json
from collections import Counter

from fastapi import FastAPI, Header
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

app = FastAPI()
account = Counter()
PROMPT, WORDS = 3000, 40


jobs = {}


class Order(BaseModel):
    """pydantic reads 1 and "true" as true."""

    stream: bool | None = False
    stream_options: dict | None = None
    background: bool | None = False


def events(items):
    def lines():
        for item in items:
            name = f"event: {item['type']}\n" if "type" in item else ""
            yield f"{name}data: {json.dumps(item)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


def charge(consumer):
    account[consumer] += PROMPT + WORDS


def chat_usage():
    return {"prompt_tokens": PROMPT, "completion_tokens": WORDS, "total_tokens": PROMPT + WORDS}


def usage():
    return {"input_tokens": PROMPT, "output_tokens": WORDS, "total_tokens": PROMPT + WORDS}


@app.get("/account/{consumer}")
def read_account(consumer: str):
    return account[consumer]


@app.post("/v1/chat/completions")
def chat(order: Order, x_consumer_id: str = Header()):
    charge(x_consumer_id)
    message = {"role": "assistant", "content": "word " * WORDS}
    reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "words"}
    if not order.stream:
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {**reply, "choices": [choice], "usage": chat_usage()}
    chunk = {**reply, "object": "chat.completion.chunk"}
    words = [{**chunk, "choices": [{"index": 0, "delta": {"content": "word "}}]}] * WORDS
    asks = (order.stream_options or {}).get("include_usage")
    return events(words + ([{**chunk, "choices": [], "usage": chat_usage()}] if asks else []))


@app.get("/v1/chat/completions/{completion}")
def stored_chat(completion: str):
    return {"id": completion, "object": "chat.completion", "choices": [], "usage": chat_usage()}


@app.post("/v1/completions")
def completions(order: Order, x_consumer_id: str = Header()):
    charge(x_consumer_id)
    reply = {"id": "c", "object": "text_completion", "created": 1, "model": "words"}
    if not order.stream:
        return {**reply, "choices": [{"index": 0, "text": "word " * WORDS}], "usage": chat_usage()}
    words = [{**reply, "choices": [{"index": 0, "text": "word "}]}] * WORDS
    asks = (order.stream_options or {}).get("include_usage")
    return events(words + ([{**reply, "choices": [], "usage": chat_usage()}] if asks else []))


@app.post("/v1/responses")
def responses(order: Order, x_consumer_id: str = Header()):
    charge(x_consumer_id)
    reply = {"id": "r", "object": "response", "status": "completed", "output": [], "usage": usage()}
    if order.background:
        job = {**reply, "id": f"resp_{len(jobs)}", "status": "queued", "usage": None}
        jobs[job["id"]] = 0
        return job
    if not order.stream:
        return reply
    words = [{"type": "response.output_text.delta", "delta": "word "}] * WORDS
    return events([*words, {"type": "response.completed", "response": reply}])


@app.get("/v1/responses/{response}")
def read_response(response: str):
    """Has ended when it is read for the second time."""
    jobs[response] += 1
    has_ended = jobs[response] > 1
    status = "completed" if has_ended else "in_progress"
    return {"id": response, "object": "response", "status": status, "output": [], "usage": usage() if has_ended else None}


@app.post("/v1/messages")
def messages(order: Order, x_consumer_id: str = Header()):
    charge(x_consumer_id)
    reply = {"id": "m", "type": "message", "role": "assistant", "model": "words", "content": []}
    if not order.stream:
        return {**reply, "stop_reason": "end_turn", "usage": usage()}
    begun = {**reply, "usage": {"input_tokens": PROMPT, "output_tokens": 1}}
    block = {"type": "text", "text": ""}
    word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
    return events(
        [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": block},
            *[word] * WORDS,
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": WORDS}},
            {"type": "message_stop"},
        ]
    )


def candidate(text, words):
    counts = {"promptTokenCount": PROMPT, "candidatesTokenCount": words, "totalTokenCount": PROMPT + words}
    content = {"role": "model", "parts": [{"text": text}]}
    return {"candidates": [{"index": 0, "content": content}], "usageMetadata": counts}


@app.post("/{version}/models/words:generateContent")
def generate(x_consumer_id: str = Header()):
    charge(x_consumer_id)
    return candidate("word " * WORDS, WORDS)


@app.post("/{version}/models/words:streamGenerateContent")
def stream_generate(alt: str = "json", x_consumer_id: str = Header()):
    charge(x_consumer_id)
    chunks = [candidate("word ", i + 1) for i in range(WORDS)]
    return chunks if alt == "json" else events(chunks)
