/** The same list of methods, endings and clients that leave as in test/set-ups/at-once.test.ts, for the set-ups in workerd. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { afterAll, beforeAll } from 'vitest'
import { startTestStore, type TestStore } from '../../src/node/testing.ts'
import type { Turns, Work } from '../support/ending-list.ts'
import { askAt, describeSetUp, listening, replyToError, serveApp } from '../support/endings.ts'
import { listen } from '../support/listen.ts'
import { startTestWorker } from '../support/workerd.ts'

let store: TestStore
beforeAll(async () => {
  store = await startTestStore()
})
afterAll(() => store?.close())

/** Where an app in workerd waits for its turns. If its connection closes, the platform has ended the app. */
async function serveTurns(turns: Turns) {
  const server = createServer(async (req, res) => {
    const work = (await json(req)) as Work
    if (req.url === '/begin') await turns.begin(work)
    else if (req.url === '/stop') turns.stop(work)
    else {
      res.once('close', () => {
        if (!res.writableFinished) turns.stop(work)
      })
      await turns.turn(work, req.url === '/last-turn')
    }
    res.end()
  })
  await listen(server, 0)
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise<void>(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

for (const [title, setUp] of [
  ['gateway in workerd', 'gateway'],
  ['guard in workerd', 'guard'],
  ['Hono middleware in workerd', 'hono'],
] as const) {
  describeSetUp(title, async turns => {
    const control = await serveTurns(turns)
    const origin = await listening(
      (req, res) => void serveApp(req, res, turns).catch(() => replyToError(res)),
    )
    const worker = await startTestWorker('at-once-worker.ts', {
      UPSTASH_REDIS_REST_URL: store.env.UPSTASH_REDIS_REST_URL,
      UPSTASH_REDIS_REST_TOKEN: store.env.UPSTASH_REDIS_REST_TOKEN,
      ...{ SETUP: setUp, TURNS_URL: control.url, ORIGIN_URL: origin.url },
    })
    return {
      ask: askAt(worker.url),
      async close() {
        await worker.close()
        await control.close()
        await origin.close()
      },
    }
  })
}
