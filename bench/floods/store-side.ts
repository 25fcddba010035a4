/** The process of the REST bridge. The bridge counts its requests itself, because a counting proxy would need more CPU. */
import { timingSafeEqual } from 'node:crypto'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { childSettings, handleCommands, reportReady } from '../child.ts'

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
  isEqual: (presented, expected) => {
    requests += 1
    return timingSafeEqual(presented, expected)
  },
})

/** Answers with the number of requests since the start. */
handleCommands(() => requests)
reportReady({ url: bridge.url })
