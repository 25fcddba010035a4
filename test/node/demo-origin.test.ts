import { connect } from 'node:net'
import { expect, it } from 'vitest'
import { startDemoOrigin } from '../../src/node/start/demo-origin.ts'

it('the demo origin echoes requests, and survives a client that disconnects in the middle of a body', async () => {
  const origin = await startDemoOrigin(0)
  const { hostname, port } = new URL(origin.url)
  const socket = connect(Number(port), hostname)
  socket.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf of')
  await new Promise(resolve => socket.once('connect', resolve))
  await new Promise(resolve => setImmediate(resolve))
  socket.resetAndDestroy()

  const response = await fetch(`${origin.url}/a?b=c`, { method: 'POST', body: 'body' })
  expect(await response.json()).toMatchObject({
    method: 'POST',
    path: '/a',
    query: { b: 'c' },
    body_bytes: 4,
  })
  await origin.close()
})
