/** Which requests to the API of a model cost no tokens. */
import { describe, expect, it } from 'vitest'
import { isRead } from '../../src/usage/reads.ts'
import type { UsageFormat } from '../../src/usage/usage.ts'

function reads(format: UsageFormat, line: string, init: RequestInit = {}): ReturnType<typeof isRead> {
  const [method = '', path = ''] = line.split(' ')
  const request = new Request(`http://a.test${path}`, { method, ...init })
  return isRead(format, request, new URL(request.url).pathname)
}

describe('a request that lets no model work', () => {
  it.each<[UsageFormat, string]>([
    ['openai', 'GET /v1/chat/completions'],
    ['openai', 'HEAD /openai/v1/chat/completions/c_1/'],
    ['openai', 'DELETE /v1/chat/completions/c_1'],
    ['openai', 'GET /v1/chat/completions/c_1/messages?limit=2'],
    ['openai', 'GET /v1/files/file-1/content'],
    ['openai', 'GET /v1/models/ft:gpt-4.1'],
    ['openai', 'GET /v1/responses/r/input_items'],
    ['openai', 'GET /v1/batches'],
    ['gemini', 'GET /v1beta/models/gemini-2.5-pro'],
    ['gemini', 'GET /v1beta/cachedContents/c1'],
    ['anthropic', 'GET /v1/models'],
    ['anthropic', 'GET /v1/messages/batches/b/results'],
    ['anthropic', 'POST /v1/messages/batches/b/cancel'],
  ])('costs nothing: %s, %s', (format, line) => {
    expect(reads(format, line)).toBe(true)
  })

  it.each([
    'GET /v1/responses/resp_1?stream=true',
    'DELETE /openai/v1/responses/resp_1',
    'POST /v1/responses/resp_1/cancel',
    'GET /v1/batches/batch_1/',
    'POST /v1/batches/batch_1/cancel',
  ])('can report what a job has cost: %s', line => {
    expect(reads('openai', line)).toBe('job')
    if (line.startsWith('POST'))
      expect(reads('openai', line, { body: '{}', headers: { 'content-length': '2' } })).toBe('job')
  })

  it.each<[UsageFormat, string, RequestInit?]>([
    ['openai', 'POST /v1/responses'],
    ['openai', 'POST /v1/chat/completions/c_1'],
    ['openai', 'POST /v1/batches'],
    ['openai', 'GET /v1/responses'],
    ['openai', 'POST /v1/responses/r'],
    ['openai', 'POST /v1/responses/r/cancel', { body: '{ }', headers: { 'content-length': '3' } }],
    ['openai', 'GET /v1/responses/r/cancel'],
    ['openai', 'GET /v1/files/f', { headers: { upgrade: 'websocket' } }],
    ['openai', 'GET /v1/files/f', { headers: { 'content-length': '90' } }],
    ['openai', 'GET /v1/files/f', { headers: { 'transfer-encoding': 'chunked' } }],
    ['openai', 'GET /v1/files/%2E%2E'],
    ['openai', 'GET /v1/files/f;x'],
    ['openai', 'PUT /v1/files/f'],
    ['openai', 'POST /v1/chat/completions/cancel'],
    ['openai', 'GET /generate'],
    ['anthropic', 'GET /v1/responses/r'],
    ['gemini', 'GET /v1beta/models/gemini-2.5-pro:generateContent'],
    ['gemini', 'POST /v1beta/batches/b/cancel'],
    ['anthropic', 'POST /v1/messages/batches'],
  ])('may cost something: %s, %s', (format, line, init) => {
    expect(reads(format, line, init)).toBe(false)
  })
})
