/** Without leases: the store decides every request that is not refused by memory. */
export { CONFIG as default } from './rules.ts'
