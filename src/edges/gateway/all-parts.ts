/** All parts of the gateway, with scripts that are compiled when they are first needed. */
import { createHoldings } from '../../limiter/keep-holdings.ts'
import { createLocalLimiter } from '../../limiter/local.ts'
import { evaluateOnCluster } from '../../limiter/slots.ts'
import { createStats } from '../../metrics/keep-stats.ts'
import { compileScripts } from '../../script/scripts.ts'
import { syncScript } from '../../script/sync-text.ts'
import { addressBehindProxies } from './behind-proxies.ts'
import { answerPreflight, setAllowedOrigin } from './cors.ts'
import { whenOver } from './ending.ts'
import type { Parts } from './parts.ts'

export const ALL_PARTS: Parts = {
  scriptsOf: compileScripts,
  evaluateOnCluster,
  createHoldings,
  createLocalLimiter,
  createStats,
  syncScript,
  whenOver,
  addressBehindProxies,
  answerPreflight,
  setAllowedOrigin,
}
