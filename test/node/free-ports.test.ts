/** Which ports `npm start` takes if others are in use. */
import { createServer } from 'node:net'
import { expect, it } from 'vitest'
import { freePorts } from '../../src/node/start/free-port.ts'

const used =
  (...ports: number[]) =>
  async (port: number) =>
    !ports.includes(port)

it.each([
  ['none', [], [8787, 8788, 8079]],
  ['the first', [8787], [8788, 8789, 8079]],
  ['those of another npm start', [8787, 8788, 8079], [8789, 8790, 8080]],
] as const)(
  'the next free port takes the place of a port in use, and no port is taken twice: %s',
  async (_, ports, found) => {
    expect(await freePorts([8787, 8788, 8079], used(...ports))).toEqual(found)
  },
)

it('names the wanted port if no port near it is free', async () => {
  expect(await freePorts([8787], async () => false)).toEqual([8787])
})

it('a port on which a server listens is in use', async () => {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  expect((await freePorts([port]))[0]).toBeGreaterThan(port)
  server.close()
})
