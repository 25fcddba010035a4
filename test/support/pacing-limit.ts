/** The limit of test/support/pacing.config.ts per second, and the algorithms that count it. */
export const PACED_LIMIT = 50
export const PACED_ALGORITHMS = ['gcra', 'fixed-window', 'sliding-window'] as const
