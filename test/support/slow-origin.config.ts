/** The config of the end-to-end tests, with a short deadline of the origin. */
import config from './e2e.config.ts'

export default { ...config, originDeadline: '1s' }
