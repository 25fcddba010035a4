/** Number of requests that each limit of flood.config.ts admits. */
export const FLOOD_LIMIT = 10
