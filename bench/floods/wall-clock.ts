/** ms since the epoch with a finer resolution than Date.now(), so that processes of one machine can compare times. */
export const wallClock = () => performance.timeOrigin + performance.now()
