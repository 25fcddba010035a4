/** The Worker: what `npm run check` and `npm start` make of sluice.config.ts. Add routes or entrypoints of your own beside it. */
export { default } from './built/worker.generated.ts'
