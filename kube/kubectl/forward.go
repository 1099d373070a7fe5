package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/rdmalab/rdmalab/rackfile"
)

// program is that of the Pods of leaves and hosts.
const program = "/rdmalab-kube"

// inPod runs the program of a Pod with args. It returns when that ends.
func (c *cluster) inPod(ctx context.Context, p *corev1.Pod, in io.Reader, out, errOut io.Writer, args ...string) error {
	q := c.set.CoreV1().RESTClient().Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: p.Spec.Containers[0].Name, Command: append([]string{program}, args...), Stdin: in != nil, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	socket, err := remotecommand.NewWebSocketExecutor(c.rc, "GET", q.URL().String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.rc, "POST", q.URL())
	if err != nil {
		return err
	}
	e, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: errOut})
}

// forwarder has sockets in a folder of this machine that stand for the control sockets of a rack's nodes: a connection to one
// is carried into the node's Pod.
type forwarder struct {
	view  *view
	paths rackfile.Paths
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	sockets []net.Listener
	trouble []string // what was said of connections that failed
}

// forward makes the sockets of all nodes whose containers run. A node without one is to commands a node that does not run.
func (v *view) forward(ctx context.Context) (*forwarder, error) {
	dir, err := os.MkdirTemp("", "kubectl-rdmalab-") // mode 0700
	if err != nil {
		return nil, err
	}
	f := &forwarder{view: v, paths: rackfile.Paths{Dir: dir}}
	ctx, f.stop = context.WithCancel(ctx)
	if err := os.MkdirAll(filepath.Dir(f.paths.Socket("x")), 0o700); err != nil {
		return nil, errors.Join(err, f.close())
	}
	for _, node := range v.names() {
		if p := v.pods[node]; running(p) {
			if err := f.open(ctx, node, p); err != nil {
				return nil, errors.Join(err, f.close())
			}
		}
	}
	return f, nil
}

// open makes the socket of a node.
func (f *forwarder) open(ctx context.Context, node string, p *corev1.Pod) error {
	l, err := net.Listen("unix", f.paths.Socket(node))
	if err != nil {
		return err
	}
	f.sockets = append(f.sockets, l)
	f.ended.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			f.ended.Go(func() { f.carry(ctx, node, p, conn) })
		}
	})
	return nil
}

// carry carries a connection into a Pod, until one of its ends is closed.
func (f *forwarder) carry(ctx context.Context, node string, p *corev1.Pod, conn net.Conn) {
	defer conn.Close()
	var said bytes.Buffer
	err := f.view.inPod(ctx, p, conn, conn, &said, "dial", node)
	if err == nil || ctx.Err() != nil {
		return
	}
	text := fmt.Sprintf("%s (Pod %s): %s %s", node, p.Name, err, strings.TrimSpace(said.String()))
	f.mu.Lock()
	defer f.mu.Unlock()
	if text = strings.TrimSpace(text); !slices.Contains(f.trouble, text) {
		f.trouble = append(f.trouble, text)
	}
}

// said returns what was said of connections that failed.
func (f *forwarder) said() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

// close removes the sockets, and ends the connections.
func (f *forwarder) close() error {
	for _, l := range f.sockets {
		_ = l.Close() // it is removed with its folder
	}
	f.stop()
	f.ended.Wait()
	return os.RemoveAll(f.paths.Dir)
}
