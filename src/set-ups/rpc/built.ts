/**
 * The imports of src/built/binding.generated.ts. `npx sluicegate build` imports the parts that the limits by name
 * use, and a bundler drops the others. Do not import from this file by hand.
 */
// First, as in gateway/built.ts.
export * as moduleOrder from '../module-order.generated.ts'

// The parts.

export * from '../built-parts.ts'
export { createReserving } from '../limits/reserve.ts'
export { builtEntrypoint } from './built-entrypoint.ts'
