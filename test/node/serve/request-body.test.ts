import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { RequestBody } from '../../../src/node/serve/request-body.ts'

it('a client that breaks off its body when nothing listens to it any more does not end the process', async () => {
  const source = new PassThrough()
  const reader = new RequestBody(source).open()
  source.write('half')
  const closed = new Promise(resolve => reader.once('close', resolve))
  source.destroy(new Error('aborted'))
  await closed
  expect(reader.errored?.message).toBe('The client has broken off the body of its request.')
})

it('a body that is discarded is read to its end, and passed on no more', async () => {
  const source = new PassThrough({ highWaterMark: 1 })
  const body = new RequestBody(source)
  const reader = body.open()
  source.write('first')
  await once(reader, 'readable')
  body.discard()
  source.end('x'.repeat(100_000))
  await once(source, 'end')
  expect([reader.destroyed, body.isWhole]).toEqual([true, true])
})
