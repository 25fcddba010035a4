/** The examination of a store. Whatever happens, its keys are removed at the end. */
import type { Config } from '../../config/compile.ts'
import { type Check, type Checked, type Examination, type Finding, runChecks } from './checks.ts'
import type { Bed, ExaminedStore } from './examined-store.ts'
import { KEY_SECONDS, KeySpace } from './key-space.ts'
import { checkLatency, checkLoad, checkReads, type Load } from './load.ts'
import { checkPermissions } from './permissions.ts'
import { protocolChecks } from './protocol.ts'
import { reachChecks } from './reach.ts'
import { checkAlgorithms, checkRules } from './rules.ts'
import { scriptChecks } from './scripts.ts'
import { serverChecks } from './server.ts'

export interface StoreToExamine {
  /** For its name and its TLS: `http(s)://`, `redis(s)://` or `unix://`. */
  url: string
  /** Opens it in an environment. */
  open(environment: string): ExaminedStore
  config: Config
  /** Absent: no load. */
  load?: Load | undefined
}

export async function examineStore(
  { url, open, config, load }: StoreToExamine,
  examination: Examination,
): Promise<Checked[]> {
  const space = new KeySpace()
  const store = open(space.environment)
  const bed: Bed = {
    ...{ send: store.send, decisions: space.recorded(store.decisions) },
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
    ...reachChecks('store', url),
    ...protocolChecks(store),
    check('permissions', checkPermissions),
    ...serverChecks(bed),
    ...scriptChecks(bed),
    check('algorithms', checkAlgorithms),
    check('rules', checkRules),
    check('reads', checkReads),
    check('latency', checkLatency),
    ...(load ? [check('load', bed => checkLoad(bed, load))] : []),
  ]
  const all: Checked[] = []
  try {
    all.push(...(await runChecks(checks, examination)))
  } finally {
    const removal = { name: 'removal', ...(await space.remove(store.send)) }
    all.push(removal)
    examination.note(removal)
  }
  return all
}
