package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// part is a process of the control plane, or one beside it.
type part struct {
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// readyWait bounds how long the API server may take, on a machine that has other things to do.
const readyWait = 3 * time.Minute

// control starts the control plane.
func (l *Lab) control(ctx context.Context) error {
	const etcd = "http://127.0.0.1:2379"
	etcdProgram, err := exec.LookPath("etcd")
	if err != nil {
		return fmt.Errorf("%w: apt-get install etcd-server", err)
	}
	p := l.pki
	bin := func(name string) string { return filepath.Join(l.cfg.Bin, name) }
	l.parts["etcd"] = &part{args: []string{
		etcdProgram, "--data-dir=" + filepath.Join(l.cfg.Dir, "etcd"), "--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380", "--unsafe-no-fsync",
	}}
	l.parts["apiserver"] = &part{args: append([]string{
		bin("kube-apiserver"), "--etcd-servers=" + etcd, "--bind-address=" + apiAddress, "--advertise-address=" + apiAddress, "--secure-port=6443",
		"--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + p.file("sa.pub"),
		"--service-account-signing-key-file=" + p.keyOf("sa"), "--client-ca-file=" + p.crt("ca"), "--tls-cert-file=" + p.crt("apiserver"), "--tls-private-key-file=" + p.keyOf("apiserver"),
		"--kubelet-client-certificate=" + p.crt("apikubelet"), "--kubelet-client-key=" + p.keyOf("apikubelet"), "--kubelet-certificate-authority=" + p.crt("ca"),
		"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP", "--enable-admission-plugins=NodeRestriction",
	}, l.cfg.API...)}
	conf := func(name string) []string {
		return []string{"--kubeconfig=" + p.conf(name), "--authentication-kubeconfig=" + p.conf(name), "--authorization-kubeconfig=" + p.conf(name), "--bind-address=127.0.0.1", "--leader-elect=false"}
	}
	l.parts["controller-manager"] = &part{args: append([]string{
		bin("kube-controller-manager"), "--service-account-private-key-file=" + p.keyOf("sa"), "--root-ca-file=" + p.crt("ca"), "--cluster-signing-cert-file=" + p.crt("ca"),
		"--cluster-signing-key-file=" + p.keyOf("ca"), "--use-service-account-credentials", "--allocate-node-cidrs=false", "--node-monitor-grace-period=20s",
	}, conf("controller-manager")...)}
	l.parts["scheduler"] = &part{args: append([]string{bin("kube-scheduler")}, conf("scheduler")...)}
	for _, name := range []string{"etcd", "apiserver"} {
		if err := l.StartPart(name); err != nil {
			return err
		}
	}
	if err := l.AwaitAPI(ctx); err != nil {
		return err
	}
	return errors.Join(l.StartPart("controller-manager"), l.StartPart("scheduler"))
}

// AwaitAPI waits until the API server answers.
func (l *Lab) AwaitAPI(ctx context.Context) error {
	err := await(ctx, readyWait, func() error {
		_, err := l.Kubectl(ctx, "", "get", "--raw", "/readyz")
		return err
	})
	if err != nil {
		return fmt.Errorf("the API server: %w: see %s", err, l.log("apiserver"))
	}
	l.cfg.Log("the API server is ready")
	return nil
}

func (l *Lab) log(name string) string { return filepath.Join(l.cfg.Dir, name+".log") }

// Beside starts a program in the control plane's network, where the API server is reached. From then on it has a name as the
// control plane's parts have: its log is in Dir, Stop ends it, StartPart starts it again, and Close ends it before them.
func (l *Lab) Beside(name string, args ...string) error {
	l.parts[name] = &part{args: args}
	l.beside = append(l.beside, name)
	return l.StartPart(name)
}

// Account makes a kubeconfig for a ServiceAccount, by a token that the API server signs for an hour, and returns its file.
func (l *Lab) Account(ctx context.Context, namespace, name string) (string, error) {
	token, err := l.Kubectl(ctx, "", "-n", namespace, "create", "token", name)
	if err != nil {
		return "", err
	}
	return l.pki.bearer(name, strings.TrimSpace(token))
}

// StartPart starts etcd, apiserver, controller-manager or scheduler, or what Beside has named.
func (l *Lab) StartPart(name string) error {
	p := l.parts[name]
	f, err := os.OpenFile(l.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close() // the process has its own descriptor
	p.cmd = exec.Command("ip", append([]string{"netns", "exec", l.netns(0)}, p.args...)...)
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.done = make(chan struct{})
	go func(p *part, cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // its end is what Stop wants
		close(done)
	}(p, p.cmd, p.done)
	return nil
}

// Stop kills a part of the control plane, or what Beside has started, and returns when it has ended.
func (l *Lab) Stop(name string) {
	p := l.parts[name]
	if p == nil || p.cmd == nil {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended already
	<-p.done
	p.cmd = nil
}
