/** Every set-up that runs here replies as the gateway does. test/package runs the same list on Bun and Deno, which it installs. */
import { installedRuntimes, SET_UPS } from '../support/set-ups.ts'
import { describeSetUps } from './same-replies.ts'

describeSetUps({ ...SET_UPS, ...installedRuntimes() })
