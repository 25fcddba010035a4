/** `npm start`, as a new user runs it. test/node/start.test.ts has its options and its faults. */
import { readdirSync } from 'node:fs'
import { expect, it } from 'vitest'
import { usePrograms } from '../support/programs.ts'

const programs = usePrograms()

it('serves requests as soon as it reports that it is ready, and leaves nothing behind on SIGTERM', async () => {
  const { child, key, url, output, exited } = await programs.start(['--redis', 'embedded'])
  expect(output()).toContain('the embedded Redis (as configured)')
  const hello = () => fetch(`${url}/hello`, { headers: { authorization: `Bearer ${key}` } })
  // On a busy machine the first decisions can miss the deadline.
  let response = await hello()
  while (response.headers.has('sluice-degraded')) response = await hello()
  expect(response.status).toBe(200)
  expect(await response.json()).toMatchObject({ path: '/hello', headers: { 'x-consumer-id': 'demo' } })
  expect(readdirSync(programs.directory)).not.toEqual([])
  child.kill('SIGTERM')
  expect(await exited).toBe(0)
  expect(readdirSync(programs.directory)).toEqual([])
  await expect(fetch(url)).rejects.toThrow()
})
