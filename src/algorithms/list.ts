/** The descriptors of all algorithms, by the names that the config and the scripts use. */
export * as concurrency from './concurrency.descriptor.ts'
export * as 'fixed-window' from './fixed-window.descriptor.ts'
export * as gcra from './gcra.descriptor.ts'
export * as 'leaky-bucket' from './leaky-bucket.descriptor.ts'
export * as 'sliding-log' from './sliding-log.descriptor.ts'
export * as 'sliding-window' from './sliding-window.descriptor.ts'
export * as 'token-bucket' from './token-bucket.descriptor.ts'
