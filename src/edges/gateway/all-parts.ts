/** All parts of the gateway, with scripts that are compiled when they are first needed. */
import { evaluateOnCluster } from '../../limiter/slots.ts'
import { compileScripts } from '../../script/scripts.ts'
import { addressBehindProxies } from './behind-proxies.ts'
import { answerPreflight, setAllowedOrigin } from './cors.ts'
import type { Parts } from './parts.ts'

export const ALL_PARTS: Parts = {
  scriptsOf: compileScripts,
  evaluateOnCluster,
  addressBehindProxies,
  answerPreflight,
  setAllowedOrigin,
}
