// rdmalab-kube has the programs of racks on Kubernetes: operator, leaf, host, agent. Each runs in its own Pod of
// one image.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rdmalab/rdmalab/kube/agent"
	"github.com/rdmalab/rdmalab/kube/host"
	"github.com/rdmalab/rdmalab/kube/image"
	"github.com/rdmalab/rdmalab/kube/leaf"
	"github.com/rdmalab/rdmalab/kube/node"
	"github.com/rdmalab/rdmalab/kube/operator"
	"github.com/rdmalab/rdmalab/kube/version"
)

// programs by their names.
var programs = map[string]func(ctx context.Context, args []string) error{
	"operator": runOperator, "leaf": runLeaf, "host": runHost, "agent": runAgent, "image": writeImage,
	"dial": dial, "crash": crash,
	"version": func(context.Context, []string) error { _, err := fmt.Println(version.String()); return err },
}

const usage = "usage: rdmalab-kube operator|leaf|host|agent|image|version [flags]; see docs/guide/kubernetes.md"

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if os.Args[1] == "leaf" || os.Args[1] == "host" {
		crashable()
	}
	if err := programs[os.Args[1]](ctx, os.Args[2:]); err != nil && !errors.Is(err, context.Canceled) {
		slog.Error("rdmalab-kube ends", "program", os.Args[1], "error", err)
		if os.Getpid() == 1 { // a Pod shows it as the reason why its container has ended
			_ = os.WriteFile("/dev/termination-log", []byte(err.Error()), 0o644)
		}
		os.Exit(1)
	}
}

func runOperator(ctx context.Context, args []string) error {
	cfg := operator.Config{Version: version.String()}
	fs, begin := flags("operator")
	fs.StringVar(&cfg.Image, "image", "", "image of leaves and hosts (required)")
	fs.StringVar((*string)(&cfg.PullPolicy), "pull-policy", string(corev1.PullIfNotPresent), "when that is fetched: Always, IfNotPresent or Never")
	fs.StringVar(&cfg.Lease, "lease-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the Lease; empty: none")
	fs.StringVar(&cfg.Probes, "probes", ":8081", "address of /healthz")
	if err := begin(args); err != nil {
		return err
	}
	cfg.LogFormat = fs.Lookup(logFormatFlag).Value.String()
	if cfg.Image == "" {
		return errors.New("--image is required")
	}
	if !slices.Contains([]corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}, cfg.PullPolicy) {
		return fmt.Errorf("--pull-policy %.20q: want Always, IfNotPresent or Never", cfg.PullPolicy)
	}
	rc, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	return operator.Run(ctx, rc, cfg)
}

// Places in the Pods of leaves and hosts, as operator/pods.go mounts them.
const (
	descriptionFile = "/etc/rdmalab/rack.json"
	secretFile      = "/etc/rdmalab-secret/secret"
	stateDir        = "/run/rack"
)

func runLeaf(ctx context.Context, args []string) error {
	cfg := leaf.Config{
		Namespace: os.Getenv("POD_NAMESPACE"), Node: os.Getenv("NODE_NAME"), Description: descriptionFile, Secret: secretFile,
		Dir: stateDir, Sockets: node.Mounted, Version: version.String(),
	}
	fs, begin := flags("leaf")
	fs.StringVar(&cfg.Rack, "rack", "", "name of the Rack (required)")
	if err := begin(args); err != nil {
		return err
	}
	var err error
	if cfg.Address, err = netip.ParseAddr(os.Getenv("POD_IP")); err != nil {
		return fmt.Errorf("POD_IP: %w", err)
	}
	rc, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	cfg.Log = slog.Default()
	return leaf.Run(ctx, rc, cfg)
}

func runHost(ctx context.Context, args []string) error {
	cfg := host.Config{Description: descriptionFile, Dir: stateDir, Sockets: node.Mounted}
	fs, begin := flags("host")
	fs.StringVar(&cfg.Name, "name", "", "name of the host (required)")
	if err := begin(args); err != nil {
		return err
	}
	cfg.Log = slog.Default()
	return host.Run(ctx, cfg)
}

func runAgent(ctx context.Context, args []string) error {
	cfg := agent.Config{}
	fs, begin := flags("agent")
	fs.StringVar(&cfg.Net, "net", "/etc/cni/net.d", "folder of CNI networks")
	fs.StringVar(&cfg.Bin, "bin", "/opt/cni/bin", "folder of CNI plugins")
	fs.StringVar(&cfg.Kubelet, "kubelet", "/var/lib/kubelet/device-plugins", "folder of device plugins")
	fs.StringVar((*string)(&cfg.State), "state", node.Root, "state of the node")
	fs.StringVar(&cfg.Plugin, "plugin", "/rdmalab-kube-cni", "the CNI plugin to install")
	fs.IntVar(&cfg.NICs, "nics", 64, "how many Pods of the node can have a NIC")
	if err := begin(args); err != nil {
		return err
	}
	rc, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	c, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	cfg.Log = slog.Default()
	cfg.Report = agent.Reporter(c, os.Getenv("NODE_NAME"), cfg.Log)
	return agent.Run(ctx, cfg)
}

// writeImage writes the image with this program and the CNI plugin.
func writeImage(_ context.Context, args []string) error {
	fs := flag.NewFlagSet("image", flag.ExitOnError)
	out := fs.String("f", "", "file of the image, for `ctr -n k8s.io images import` or `docker load` (required)")
	name := fs.String("name", image.Name, "name of the image")
	plugin := fs.String("plugin", "", "the CNI plugin (required)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *out == "" || *plugin == "" {
		return errors.New("-f and -plugin are required")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return image.Write(*out, *name, []string{"/rdmalab-kube"}, map[string]string{"rdmalab-kube": self, "rdmalab-kube-cni": *plugin})
}
