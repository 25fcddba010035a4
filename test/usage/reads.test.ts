/** Which requests to the API of a model cost no tokens. */
import { describe, expect, it } from 'vitest'
import { isRead } from '../../src/usage/reads.ts'
import type { UsageFormat } from '../../src/usage/usage.ts'

function reads(format: UsageFormat, line: string, init: RequestInit = {}): boolean {
  const [method = '', path = ''] = line.split(' ')
  const request = new Request(`http://a.test${path}`, { method, ...init })
  return isRead(format, request, new URL(request.url).pathname)
}

describe('a request that lets no model work', () => {
  it.each<[UsageFormat, string]>([
    ['openai', 'GET /v1/responses/resp_1'],
    ['openai', 'GET /v1/responses/resp_1?stream=true'],
    ['openai', 'HEAD /openai/v1/responses/resp_1/'],
    ['openai', 'GET /v1/responses/resp_1/input_items'],
    ['openai', 'DELETE /v1/responses/resp_1'],
    ['openai', 'GET /v1/chat/completions'],
    ['openai', 'GET /v1/chat/completions/c_1/messages'],
    ['openai', 'GET /v1/batches'],
    ['openai', 'GET /v1/batches/batch_1'],
    ['openai', 'GET /v1/files/file-1/content'],
    ['openai', 'GET /v1/models/ft:gpt-4.1'],
    ['openai', 'POST /v1/responses/resp_1/cancel'],
    ['openai', 'POST /v1/batches/batch_1/cancel'],
    ['anthropic', 'GET /v1/messages/batches/b_1/results'],
    ['anthropic', 'POST /v1/messages/batches/b_1/cancel'],
  ])('costs nothing: %s, %s', (format, line) => {
    expect(reads(format, line)).toBe(true)
  })

  it.each<[UsageFormat, string, RequestInit?]>([
    ['openai', 'POST /v1/responses'],
    ['openai', 'POST /v1/chat/completions/c_1'],
    ['openai', 'POST /v1/batches'],
    ['openai', 'GET /v1/responses', { headers: { upgrade: 'websocket' } }],
    ['openai', 'GET /v1/responses'],
    ['openai', 'GET /v1/responses/r', { headers: { upgrade: 'websocket' } }],
    ['openai', 'GET /v1/responses/r', { headers: { 'content-length': '90' } }],
    ['openai', 'GET /v1/responses/r', { headers: { 'transfer-encoding': 'chunked' } }],
    ['openai', 'GET /v1/responses/%2E%2E'],
    ['openai', 'GET /v1/responses/r;x'],
    ['openai', 'PUT /v1/responses/r'],
    ['openai', 'POST /v1/responses/r/cancel', { body: '{"input":"x"}' }],
    ['openai', 'POST /v1/chat/completions/cancel'],
    ['openai', 'GET /generate'],
    ['anthropic', 'GET /v1/responses/r'],
    ['anthropic', 'POST /v1/messages/batches'],
  ])('may cost something: %s, %s', (format, line, init) => {
    expect(reads(format, line, init)).toBe(false)
  })

  it('can be a cancellation with an empty object', () => {
    const init = { body: '{}', headers: { 'content-length': '2' } }
    expect(reads('openai', 'POST /v1/responses/r/cancel', init)).toBe(true)
  })
})
