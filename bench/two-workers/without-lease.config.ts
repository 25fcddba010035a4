/** Without leases: the store decides every request that the isolate does not refuse from memory. */
export { CONFIG as default } from './rules.ts'
