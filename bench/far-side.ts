/** A process with the remote parts: the REST bridge, both near and 20 ms away, and the demo origin. */
import { startBridge } from '../src/node/rest-bridge/bridge.ts'
import { startDemoOrigin } from '../src/node/start/demo-origin.ts'
import { childSettings, reportReady } from './child.ts'
import { startDelayProxy } from './delay-proxy.ts'

export interface FarSideSettings {
  redisUrl: string
  token: string
}

export interface FarSide {
  near: string
  /** The same bridge, with a delay of 10 ms in each direction. */
  far: string
  origin: string
}

const { redisUrl, token } = childSettings<FarSideSettings>()
const bridge = await startBridge({ redisUrl, token, port: 0 })
const delayedPort = await startDelayProxy(bridge.port, 10)
const origin = await startDemoOrigin(0)

reportReady({
  near: bridge.url,
  far: `http://127.0.0.1:${delayedPort}`,
  origin: origin.url,
} satisfies FarSide)
