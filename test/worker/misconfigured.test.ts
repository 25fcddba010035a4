/** The Worker that was deployed without its secrets. A file of its own, as the app is built once per isolate. */
import { expect, it, vi } from 'vitest'
import worker from '../../src/index.ts'

it('answers 503 and names the missing secrets in its log, not in its reply', async () => {
  const log = vi.spyOn(console, 'error').mockImplementation(() => {})
  const request = new Request<unknown, IncomingRequestCfProperties>('https://api.example.com/')
  const response = await worker.fetch(request, {}, {} as ExecutionContext)
  expect(response.status).toBe(503)
  expect(await response.json()).toMatchObject({ title: 'Service Unavailable' })
  expect(String(log.mock.calls[0])).toContain(
    'UPSTASH_REDIS_REST_URL: is missing. On Workers: npx wrangler secret put',
  )
  vi.restoreAllMocks()
})
