package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/rackspec"
	"github.com/rdmalab/rdmalab/rackfile"
)

// cluster is a cluster with one of its namespaces.
type cluster struct {
	rc        *rest.Config
	client    client.Client
	set       *kubernetes.Clientset
	namespace string
	typed     string
}

// open reaches the cluster.
func (o *options) open() (*cluster, error) {
	cfg := o.config()
	rc, err := cfg.ClientConfig()
	if err != nil {
		return nil, badUse("%w: name a kubeconfig by --kubeconfig or KUBECONFIG", err)
	}
	namespace, _, err := cfg.Namespace()
	if err != nil {
		return nil, err
	}
	// A command makes a stream for each request to a daemon.
	rc.QPS, rc.Burst = 100, 200
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	set, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, err
	}
	return &cluster{rc: rc, client: c, set: set, namespace: namespace, typed: o.typed()}, nil
}

// view is a Rack with what it is made of.
type view struct {
	*cluster
	rack   *v1alpha1.Rack
	spec   *rackfile.Rack
	leaves []v1alpha1.RackLeaf
	pods   map[string]*corev1.Pod // by the names of leaves and hosts
}

// look reads a Rack, its RackLeafs and its Pods.
func (c *cluster) look(ctx context.Context, name string) (*view, error) {
	v := &view{cluster: c, rack: new(v1alpha1.Rack), pods: make(map[string]*corev1.Pod)}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, v.rack)
	switch {
	case apierrors.IsNotFound(err):
		return nil, badUse("namespace %s has no Rack %.60q%s", c.namespace, name, c.others(ctx))
	case err != nil:
		return nil, err
	}
	if v.spec, err = rackspec.Parse(name, v.rack.Spec.Rack, int(v.rack.Spec.Nodes)); err != nil {
		return v, fmt.Errorf("rack %s: %w", name, err)
	}
	of := []client.ListOption{client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelRack: name}}
	leaves, pods := new(v1alpha1.RackLeafList), new(corev1.PodList)
	if err := c.client.List(ctx, leaves, of...); err != nil {
		return nil, err
	}
	if err := c.client.List(ctx, pods, of...); err != nil {
		return nil, err
	}
	v.leaves = leaves.Items
	slices.SortFunc(v.leaves, func(a, b v1alpha1.RackLeaf) int { return strings.Compare(a.Spec.Machine, b.Spec.Machine) })
	for i := range pods.Items {
		if n := v.nodeOf(&pods.Items[i]); n != "" {
			v.pods[n] = &pods.Items[i]
		}
	}
	return v, nil
}

// nodeOf returns the leaf or host whose Pod one is; "" if it is of none, or ends.
func (v *view) nodeOf(p *corev1.Pod) string {
	if !p.DeletionTimestamp.IsZero() {
		return ""
	}
	if p.Labels[v1alpha1.LabelRole] != v1alpha1.RoleLeaf {
		return p.Labels[v1alpha1.LabelHost]
	}
	for i := range v.leaves {
		if v.leaves[i].Spec.Node == p.Spec.NodeName {
			return v.leaves[i].Spec.Leaf
		}
	}
	return ""
}

// others says which Racks there are instead of one that is not there.
func (c *cluster) others(ctx context.Context) string {
	list := new(v1alpha1.RackList)
	if err := c.client.List(ctx, list, client.InNamespace(c.namespace)); err != nil || len(list.Items) == 0 {
		return "; name another namespace by -n"
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return "; it has: " + strings.Join(names, " ") + "; -n names another namespace"
}

// names returns the names of the leaves and hosts.
func (v *view) names() []string { return append(v.spec.SwitchNames(), v.spec.HostNames()...) }

// pod returns the Pod of a leaf or a host that runs.
func (v *view) pod(node string) (*corev1.Pod, error) {
	if !slices.Contains(v.names(), node) {
		return nil, badUse("rack %s has no leaf or host %.60q; it has: %s", v.rack.Name, node, strings.Join(v.names(), " "))
	}
	p := v.pods[node]
	if p == nil {
		return nil, fmt.Errorf("%s has no Pod: see `%s status %s`", node, v.typed, v.rack.Name)
	}
	return p, nil
}

// ready reports whether a Pod is ready.
func ready(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// running reports whether the container of a Pod runs.
func running(p *corev1.Pod) bool {
	return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
}

// restarts is how often the container of a Pod was started again.
func restarts(p *corev1.Pod) int32 {
	if p == nil || len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}
