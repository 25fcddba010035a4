/** Requests that one limit of flood.config.ts admits. */
export const FLOOD_LIMIT = 10
