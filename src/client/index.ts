/** `sluicegate/client`: a `fetch` that keeps to the limits of the APIs it calls. Runs anywhere fetch does, without dependencies. */
export { type ClientLimiter, type ClientOptions, createClient } from './client.ts'
export { LimitError } from './limit-error.ts'
