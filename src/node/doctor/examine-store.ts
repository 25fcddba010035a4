/** The examination of a store. Whatever happens, its keys are removed at the end. */
import type { Config } from '../../config/compile.ts'
import { type Examination, runChecks } from './checks.ts'
import { checkAlgorithms, checkRules } from './decisions.ts'
import { openExamined, type StoreAddress } from './examined-store.ts'
import { KeySpace } from './key-space.ts'
import { checkLatency, checkLoad, checkReads, type Load } from './load.ts'
import { checkPermissions, checkProtocol, checkToken, scriptChecks } from './protocol.ts'
import { reachChecks } from './reach.ts'
import { serverChecks } from './server.ts'

export async function examineStore(at: StoreAddress, config: Config, examination: Examination, load?: Load) {
  const space = new KeySpace()
  const bed = await openExamined(at, config, space)
  const { sendUnauthorized } = bed
  // What makes others meaningless comes first.
  const checks = {
    ...reachChecks('store', bed.urls),
    protocol: () => checkProtocol(bed),
    ...(sendUnauthorized && { token: () => checkToken(sendUnauthorized) }),
    permissions: () => checkPermissions(bed),
    ...serverChecks(bed),
    ...scriptChecks(bed),
    algorithms: () => checkAlgorithms(bed),
    rules: () => checkRules(bed),
    reads: () => checkReads(bed),
    latency: () => checkLatency(bed),
    ...(load && { load: () => checkLoad(bed, load, examination.isStopped) }),
  }
  try {
    await runChecks(checks, examination)
  } finally {
    examination.note({ name: 'removal', ...(await space.remove(bed.send)) })
    await bed.close?.()
  }
}
