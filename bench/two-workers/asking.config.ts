/** Every request that may pass is decided by the store. */
export { CONFIG as default } from './rules.ts'
