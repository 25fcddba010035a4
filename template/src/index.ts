/** The Worker. `npm run check` and each deployment generate it from sluice.config.ts. You can add entrypoints of your own here. */
export { default } from './built/worker.generated.ts'
// For other Workers that call `limits` of the config through a service binding:
// export { Limits } from './built/binding.generated.ts'
