package kubectl

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
)

// outOfService is the taint that says that a node is off, and stays so: the cluster removes its Pods.
const outOfService = "node.kubernetes.io/out-of-service"

func (o *options) evacuateCmd() *cobra.Command {
	var yes, undo bool
	cmd := &cobra.Command{
		Use: "evacuate NODE", Short: "Give a dead node up, by the taint " + outOfService + ": the cluster removes its Pods", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.open()
			if err != nil {
				return err
			}
			n := new(corev1.Node)
			if err := c.client.Get(cmd.Context(), client.ObjectKey{Name: args[0]}, n); err != nil {
				if apierrors.IsNotFound(err) {
					return badUse("the cluster has no node %.60q: see `kubectl get nodes`", args[0])
				}
				return err
			}
			if undo {
				return c.taint(cmd, n, false)
			}
			if works(n) {
				return badUse("node %s works: the taint is for nodes that are off; to empty one that works, `kubectl drain %s`", n.Name, n.Name)
			}
			hosts, err := c.hostsOn(cmd, n.Name)
			if err != nil {
				return err
			}
			if !yes {
				if err := ask(cmd, n.Name, hosts); err != nil {
					return err
				}
			}
			return c.taint(cmd, n, true)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&undo, "undo", false, "remove the taint, when the node is back")
	cmd.MarkFlagsMutuallyExclusive("yes", "undo")
	return cmd
}

// works reports whether a node is ready.
func works(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// hostsOn returns the hosts of racks on a node, as NAMESPACE/RACK: HOST HOST.
func (c *cluster) hostsOn(cmd *cobra.Command, node string) (list []string, err error) {
	leaves := new(v1alpha1.RackLeafList)
	err = c.client.List(cmd.Context(), leaves)
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: you may not list RackLeafs of all namespaces: racks of others than %s are not named\n", name, c.namespace)
		err = c.client.List(cmd.Context(), leaves, client.InNamespace(c.namespace))
	}
	for i := range leaves.Items {
		if l := &leaves.Items[i]; l.Spec.Node == node {
			list = append(list, fmt.Sprintf("%s/%s: %s", l.Namespace, l.Spec.Rack, strings.Join(l.Spec.Hosts, " ")))
		}
	}
	return list, err
}

// ask asks whether a node is to be given up.
func ask(cmd *cobra.Command, node string, hosts []string) error {
	if f, ok := cmd.InOrStdin().(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return badUse("this removes all Pods of node %s, and asks on a terminal: there is none; repeat it with --yes", node)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "All Pods of node %s are removed from the cluster; be sure that it is off. ", node)
	if len(hosts) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "The memory of these hosts is gone, and they are not moved: %s. ", strings.Join(hosts, "; "))
	}
	fmt.Fprint(cmd.ErrOrStderr(), "Type the name of the node to go on: ")
	line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // without an answer nothing is done
	if strings.TrimSpace(line) != node {
		return badUse("nothing was done")
	}
	return nil
}

// taint sets the taint, or removes it.
func (c *cluster) taint(cmd *cobra.Command, n *corev1.Node, on bool) error {
	before := n.DeepCopy()
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == outOfService })
	if on {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: outOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	}
	// Another one may change the taints meanwhile: the list is replaced as a whole.
	if err := c.client.Patch(cmd.Context(), n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	text := "node %s is given up: its Pods are removed, and with them the memory of its hosts. Racks there stay Degraded: delete them and make them again; when the node is back, `kubectl rdmalab evacuate %[1]s --undo`\n"
	if !on {
		text = "node %s takes Pods again\n"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), text, n.Name)
	return err
}
