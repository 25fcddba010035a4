/** Certificates for servers of tests, made by openssl. */
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

export const hasOpenssl = (process.env.PATH ?? '')
  .split(':')
  .some(folder => existsSync(join(folder, 'openssl')))

/** Makes a certificate and its key: `<name>.pem` and `<name>.key`. @param more options of `openssl req` */
function makeCertificate(directory: string, name: string, ...more: string[]): void {
  const newKey = [
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-noenc',
    '-keyout',
    `${name}.key`,
  ]
  const args = [
    'req',
    '-x509',
    ...newKey,
    '-out',
    `${name}.pem`,
    '-subj',
    `/CN=${name}`,
    '-days',
    '2',
    ...more,
  ]
  execFileSync('openssl', args, { cwd: directory, stdio: 'ignore' })
}

/** Makes two authorities. The first one signs `redis` and `expired` for `localhost`, and `elsewhere` for another host. */
export function makeCertificates(directory: string): void {
  makeCertificate(directory, 'authority')
  makeCertificate(directory, 'other-authority')
  const signer = ['-CA', 'authority.pem', '-CAkey', 'authority.key']
  const LOCAL = 'subjectAltName=DNS:localhost'
  makeCertificate(directory, 'redis', ...signer, '-addext', LOCAL)
  makeCertificate(directory, 'elsewhere', ...signer, '-addext', 'subjectAltName=DNS:planted.example')
  // `openssl req` makes no certificate that has ended.
  makeCertificate(directory, 'expired', '-addext', LOCAL)
  const [renew, out] = [
    'x509 -in expired.pem -signkey expired.key -x509toreq -copy_extensions copy',
    'expired.csr',
  ]
  execFileSync('openssl', [...renew.split(' '), '-out', out], { cwd: directory, stdio: 'ignore' })
  const args = [
    'x509',
    '-req',
    '-in',
    out,
    ...signer,
    '-days',
    '-1',
    '-copy_extensions',
    'copy',
    '-out',
    'expired.pem',
  ]
  execFileSync('openssl', args, { cwd: directory, stdio: 'ignore' })
}

/** The settings of a Redis that uses them, except its port. */
export const TLS_SETTINGS = {
  'tls-cert-file': 'redis.pem',
  'tls-key-file': 'redis.key',
  'tls-ca-cert-file': 'authority.pem',
  'tls-auth-clients': 'no',
} as const
