/** Whether a URL can be reached: its name, and its TLS. For stores and gateways. */
import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { connect } from 'node:tls'
import { isOnThisMachine } from '../../ops/store-failure.ts'
import { describeTlsFailure } from '../tls-failure.ts'
import { type Checks, type Finding, fault, findings, limit, ok } from './checks.ts'

const TIMEOUT_MS = 5000
const DAY_MS = 86_400_000
/** Certificates are usually renewed 30 days before they end. */
const MIN_DAYS = 14

/** @param urls of servers that are alike. The finding is about the first that is not ok, or the first */
export function reachChecks(what: 'store' | 'gateway', urls: readonly string[]): Checks {
  const onEach = (run: (url: URL, host: string) => Promise<Finding>) => async () => {
    const all = await Promise.all(
      urls.map(url => run(new URL(url), new URL(url).hostname.replace(/^\[|\]$/g, ''))),
    )
    return all.find(({ verdict }) => verdict !== 'ok') ?? all[0]!
  }
  return { [`${what}-address`]: onEach(checkName), [`${what}-tls`]: onEach(checkTls) }
}

const msSince = (startedAt: number) => Math.round(performance.now() - startedAt)

async function checkName(_: URL, host: string): Promise<Finding> {
  if (host === '' || isIP(host)) return ok`The host is an IP address, which needs no DNS.`
  const startedAt = performance.now()
  const found = await lookup(host, { all: true }).catch(({ code }) => String(code))
  if (typeof found === 'string')
    return fault`The name of the host does not resolve (${found}). → Copy the URL again. A deleted database has no name any more.`
  const ms = msSince(startedAt)
  return findings({ dns_ms: ms }).ok`The name resolves in ${ms} ms (addresses: ${found.length}).`
}

async function checkTls({ protocol, port, href }: URL, host: string): Promise<Finding> {
  if (protocol !== 'https:' && protocol !== 'rediss:') {
    if (isOnThisMachine(href)) return ok`No TLS, which is not needed on this machine.`
    return protocol === 'redis:'
      ? limit`There is no TLS: passwords and keys travel in clear text. → Use rediss://, unless the network between is your own.`
      : fault`There is no TLS: tokens and keys travel in clear text. → Use an https URL. For the bridge, put a proxy with TLS in front of it.`
  }
  const startedAt = performance.now()
  const socket = connect({
    ...{ host, port: Number(port || (protocol === 'https:' ? 443 : 6379)), timeout: TIMEOUT_MS },
    ...(!isIP(host) && { servername: host }),
  })
  const failure = await new Promise<string | undefined>(resolve => {
    socket.once('secureConnect', () => resolve(undefined))
    socket.once('error', ({ code }: NodeJS.ErrnoException) => resolve(String(code)))
    // A server without TLS waits for the rest of a command.
    socket.once('timeout', () => resolve(socket.connecting ? 'ETIMEDOUT' : 'SSL_SILENT'))
  })
  const ms = msSince(startedAt)
  const [version, certificate] = [socket.getProtocol(), socket.getPeerCertificate()]
  socket.destroy()
  if (failure) {
    const [what, fix] = describeTlsFailure(failure, protocol === 'https:') ?? [
      `No connection can be made (${failure}).`,
      'Check the host and the port of the URL, and the firewall.',
    ]
    return fault`${what} → ${fix}`
  }
  const days = Math.floor((Date.parse(certificate.valid_to) - Date.now()) / DAY_MS)
  const found = findings({ tls_ms: ms, certificate_days: days })
  return days < MIN_DAYS
    ? found.limit`The certificate ends in ${days} days. → Renew it: when it has ended, no request gets through.`
    : found.ok`${version!}, connected in ${ms} ms. The certificate is valid for ${days} more days.`
}
