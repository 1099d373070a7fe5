package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki has the certificates of a cluster, as files.
type pki struct {
	dir    string
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

func (p *pki) file(name string) string  { return filepath.Join(p.dir, name) }
func (p *pki) crt(name string) string   { return p.file(name + ".crt") }
func (p *pki) keyOf(name string) string { return p.file(name + ".key") }
func (p *pki) conf(name string) string  { return p.file(name + ".conf") }

// newPKI makes an authority, the certificates of all components and nodes, and their kubeconfigs.
func newPKI(dir string, nodes int) (*pki, error) {
	p := &pki{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.cert("ca", pkix.Name{CommonName: "lab"}, nil, nil); err != nil {
		return nil, err
	}
	if err := p.accounts(); err != nil {
		return nil, err
	}
	servers := []net.IP{net.ParseIP(apiAddress), net.ParseIP("127.0.0.1"), net.ParseIP("10.96.0.1")}
	if err := p.cert("apiserver", pkix.Name{CommonName: "kube-apiserver"}, servers, []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"}); err != nil {
		return nil, err
	}
	names := map[string]pkix.Name{
		"apikubelet":         {Organization: []string{"system:masters"}, CommonName: "apiserver-kubelet"},
		"admin":              {Organization: []string{"system:masters"}, CommonName: "admin"},
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
		"proxy":              {CommonName: "system:kube-proxy"},
	}
	for name, subject := range names {
		if err := p.client(name, subject, nil, nil); err != nil {
			return nil, err
		}
	}
	for n := 1; n <= nodes; n++ {
		subject := pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:" + NodeName(n)}
		if err := p.client(NodeName(n), subject, []net.IP{net.ParseIP(nodeAddress(n))}, []string{NodeName(n)}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// client makes a certificate, and a kubeconfig with it.
func (p *pki) client(name string, subject pkix.Name, ips []net.IP, dns []string) error {
	if err := p.cert(name, subject, ips, dns); err != nil {
		return err
	}
	return p.kubeconfig(name, fmt.Sprintf("client-certificate: %s, client-key: %s", p.crt(name), p.keyOf(name)))
}

// bearer makes a kubeconfig with a token, and returns its file.
func (p *pki) bearer(name, token string) (string, error) {
	return p.conf(name), p.kubeconfig(name, "token: "+token)
}

// kubeconfig writes the kubeconfig of a user, who proves by keys of a mapping in YAML who it is.
func (p *pki) kubeconfig(name, proof string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s:6443", certificate-authority: %s}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, apiAddress, p.crt("ca"), proof)
	return os.WriteFile(p.conf(name), []byte(text), 0o600)
}

// cert makes a certificate; the first one is the authority's.
func (p *pki) cert(name string, subject pkix.Name, ips []net.IP, dns []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	p.serial++
	t := &x509.Certificate{
		SerialNumber: big.NewInt(p.serial), Subject: subject, IPAddresses: ips, DNSNames: dns, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if p.ca == nil {
		t.IsCA, t.KeyUsage, t.ExtKeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, nil
		p.ca, p.key = t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, p.ca, key.Public(), p.key)
	if err != nil {
		return err
	}
	if t == p.ca {
		if p.ca, err = x509.ParseCertificate(der); err != nil {
			return err
		}
	}
	if err := writePEM(p.crt(name), "CERTIFICATE", der); err != nil {
		return err
	}
	return writeKey(p.keyOf(name), key)
}

// accounts makes the key pair by which tokens of ServiceAccounts are signed.
func (p *pki) accounts() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writePEM(p.file("sa.pub"), "PUBLIC KEY", der); err != nil {
		return err
	}
	return writeKey(p.keyOf("sa"), key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
