/** A process with the REST bridge, which counts its own requests: a proxy that counts would cost CPU that the machine lacks. */
import { timingSafeEqual } from 'node:crypto'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { answerQuestions, childSettings, sayReady } from '../child.ts'

export interface StoreSideSettings {
  redisUrl: string
  token: string
}

const { redisUrl, token } = childSettings<StoreSideSettings>()
let requests = 0
const bridge = await startBridge({
  redisUrl,
  token,
  port: 0,
  // Called once for each request.
  isEqualDigest: (presented, expected) => {
    requests += 1
    return timingSafeEqual(presented, expected)
  },
})

/** The requests since it started. */
answerQuestions(() => requests)
sayReady({ url: bridge.url })
