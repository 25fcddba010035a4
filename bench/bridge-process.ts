/** The process of a bridge that is measured by itself. */
import { startBridge } from '../src/node/rest-bridge/bridge.ts'
import { childSettings, reportReady } from './child.ts'

const bridge = await startBridge({ ...childSettings<{ redisUrl: string; token: string }>(), port: 0 })
reportReady({ url: bridge.url }, () => bridge.close())
