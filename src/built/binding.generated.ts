// Made by `npx sluicegate build` from the config. Do not edit.
import { scriptsOf } from './limits.generated.ts'
import { builtEntrypoint, createEngine, createRefusalMemory, createStatsRecorder, createTopCallers, withMissingParts } from '../set-ups/rpc/built.ts'
import config from '../../sluice.config.ts'

/** The limits by name as a service binding. */
export class Limits extends builtEntrypoint(config, {
  algorithms: withMissingParts({
    countings: {  },
  }),
  parts: withMissingParts({
    scriptsOf,
    createRefusalMemory,
    createStatsRecorder,
    createTopCallers,
    createEngine,
  }),
  compilers: withMissingParts({
  }),
}) {}
