/** The examination of a store. Whatever happens, its keys are removed at the end. */
import type { Config } from '../../config/compile.ts'
import { type Check, type Examination, type Finding, runChecks } from './checks.ts'
import { checkAlgorithms, checkRules } from './decisions.ts'
import { type Bed, KEY_SECONDS, KeySpace, openExamined, type StoreAddress } from './examined-store.ts'
import { checkLatency, checkLoad, checkReads, type Load } from './load.ts'
import { checkPermissions, checkProtocol, checkToken, commandChecks } from './protocol.ts'
import { reachChecks } from './reach.ts'
import { serverChecks } from './server.ts'

export async function examineStore(at: StoreAddress, config: Config, examination: Examination, load?: Load) {
  const space = new KeySpace()
  const store = await openExamined(at, config, space.environment)
  const bed: Bed = {
    ...{ ...store, decisions: space.recorded(store.decisions) },
    ...{ config, key: space.key, isStopped: examination.isStopped },
    async writeRecords(of) {
      const records = of.flatMap(({ records }) => records)
      const commands = records.map(([key, text]) => ['SETEX', space.at(key), KEY_SECONDS, text] as const)
      if (commands.length > 0) await store.send(commands)
    },
  }
  const check = (name: string, run: (bed: Bed) => Promise<Finding>): Check => ({ name, run: () => run(bed) })
  // What makes others meaningless comes first.
  const checks: Check[] = [
    ...reachChecks('store', store.urls),
    { ...check('protocol', checkProtocol), isEssential: true },
    ...(store.sendWith ? [check('token', checkToken)] : []),
    check('permissions', checkPermissions),
    ...serverChecks(bed),
    ...commandChecks(bed),
    check('algorithms', checkAlgorithms),
    check('rules', checkRules),
    check('reads', checkReads),
    check('latency', checkLatency),
    ...(load ? [check('load', bed => checkLoad(bed, load))] : []),
  ]
  try {
    await runChecks(checks, examination)
  } finally {
    examination.note({ name: 'removal', ...(await space.remove(store.send)) })
    await store.close?.()
  }
}
