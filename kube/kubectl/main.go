// Package kubectl is the plugin of kubectl for racks: it names leaves and hosts as the rack does, finds their Pods, and reaches
// the control sockets in them by `kubectl exec` (pods/exec). It has the rights of the user's kubeconfig, and no others.
package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/rdmalab/rdmalab/kube/version"
)

// Exit statuses: of a mistake in the command line, which has done nothing, and of another error.
const (
	exitUsage  = 2
	exitFailed = 1
)

// name is what errors begin with.
const name = "kubectl-rdmalab"

// useError is a mistake in the command line.
type useError struct{ error }

func badUse(format string, args ...any) error { return useError{fmt.Errorf(format, args...)} }

// exitCode ends the plugin with a status; what is to be said was said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Main runs the command line, and ends the process.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags that say which cluster and namespace.
type options struct{ kubeconfig, context, namespace string }

// run is Main without its process.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	klog.SetLogger(logr.Discard()) // libraries log that a connection was closed when its work was done; errors are returned
	o := new(options)
	root := &cobra.Command{
		Use: "kubectl rdmalab [-n NAMESPACE] COMMAND RACK …", Short: "Racks of RDMA machines on Kubernetes: look at them, break them, measure on them",
		Long: "Racks of RDMA machines on Kubernetes. Commands name the Rack first, and then its leaves and hosts as the rack does: ms0, leaf1.\n" +
			"They use the rights of your kubeconfig; docs/guide/kubernetes.md says which each needs.",
		SilenceUsage: true, SilenceErrors: true, TraverseChildren: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return badUse("unknown command %.40q; see `kubectl rdmalab --help`", args[0])
		},
	}
	fs := root.PersistentFlags()
	fs.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the Rack (default: that of the kubeconfig's context)")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: as kubectl)")
	fs.StringVar(&o.context, "context", "", "context of the kubeconfig (default: the current one)")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(o.statusCmd(), o.logsCmd(), o.execCmd(), o.crashCmd(), o.evacuateCmd())
	root.AddCommand(o.carriedCmds()...)
	root.AddCommand(&cobra.Command{Use: "version", Short: "Print the version of the plugin", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
		return err
	}})
	began := false
	for _, c := range root.Commands() {
		f := c.RunE
		if f != nil {
			c.RunE = func(cmd *cobra.Command, args []string) error { began = true; return f(cmd, args) }
		}
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	var code exitCode
	var use useError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &use):
	case !began:
		err = fmt.Errorf("%w; see `kubectl rdmalab --help`", err)
	}
	fmt.Fprintf(errOut, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.As(err, &use) || !began {
		return exitUsage
	}
	return exitFailed
}

// config returns the settings of the cluster, and the namespace.
func (o *options) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	over := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	over.Context.Namespace = o.namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, over)
}

// typed returns what a user types in front of a command.
func (o *options) typed() string {
	s := "kubectl rdmalab"
	for _, f := range []struct{ flag, value string }{{"-n", o.namespace}, {"--kubeconfig", o.kubeconfig}, {"--context", o.context}} {
		if f.value != "" {
			s += " " + f.flag + " " + f.value
		}
	}
	return s
}
