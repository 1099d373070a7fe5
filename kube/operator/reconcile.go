// Package operator is the controller of Racks: from a Rack it makes RackLeafs, a DaemonSet of leaves, a StatefulSet
// for each host, and what these need, and writes the Rack's status. It keeps nothing but objects: after a restart it goes
// on from them, and while it is gone racks work on.
package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/rackspec"
	"github.com/rdmalab/rdmalab/rackfile"
)

// Scheme makes all kinds known that the operator uses.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	err := errors.Join(v1alpha1.AddToScheme(s), appsv1.AddToScheme(s), corev1.AddToScheme(s), rbacv1.AddToScheme(s), networkingv1.AddToScheme(s))
	return s, err
}

// Reconciler reconciles Racks.
type Reconciler struct {
	Client client.Client
	// Direct reads from the API server itself: of a Rack that is deleted nothing may be overlooked.
	Direct client.Reader
	Scheme *runtime.Scheme
	Events events.EventRecorder
	// Image is that of leaves and hosts, Version that of its programs.
	Image, Version string
	// PullPolicy and LogFormat are as in Config.
	PullPolicy corev1.PullPolicy
	LogFormat  string
}

// resync is how soon a Rack that is not Ready is looked at again, though nothing has been reported.
const resync = 5 * time.Second

// Reconcile makes what a Rack wants, or takes it away.
func (r *Reconciler) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	k := new(v1alpha1.Rack)
	if err := r.Client.Get(ctx, q.NamespacedName, k); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := k.DeepCopy()
	if !k.DeletionTimestamp.IsZero() {
		return r.remove(ctx, k)
	}
	if controllerutil.AddFinalizer(k, v1alpha1.Finalizer) {
		if err := r.Client.Patch(ctx, k, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
		before = k.DeepCopy()
	}
	k.Status.ObservedGeneration = k.Generation
	err := r.bring(ctx, k)
	if err != nil && !apierrors.IsConflict(err) {
		set(k, v1alpha1.ConditionPlaced, false, "Error", err.Error())
	}
	if serr := r.write(ctx, before, k); err == nil {
		err = serr
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	if k.Status.Phase == v1alpha1.PhaseReady || k.Status.Phase == v1alpha1.PhaseRefused {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: resync}, err
}

// bring makes the objects of a rack, and its status.
func (r *Reconciler) bring(ctx context.Context, k *v1alpha1.Rack) error {
	rack, err := rackspec.Parse(k.Name, k.Spec.Rack, int(k.Spec.Nodes))
	if err != nil {
		set(k, v1alpha1.ConditionAccepted, false, "Unfit", err.Error())
		k.Status.Phase = v1alpha1.PhaseRefused
		return nil
	}
	set(k, v1alpha1.ConditionAccepted, true, "Accepted", fmt.Sprintf("%d hosts on %d nodes", len(rack.Hosts), k.Spec.Nodes))
	nodes := new(corev1.NodeList)
	if err := r.Client.List(ctx, nodes); err != nil {
		return err
	}
	leaves, err := r.leaves(ctx, k, rack, nodes.Items)
	if err != nil {
		return err
	}
	if len(leaves) < int(k.Spec.Nodes) {
		set(k, v1alpha1.ConditionPlaced, false, "TooFewNodes", fmt.Sprintf("%d of %d nodes are ready, match nodeSelector, and offer both %s and %s: see the DaemonSet rdmalab-node",
			len(leaves), k.Spec.Nodes, v1alpha1.ResourceNIC, v1alpha1.ResourcePort))
		k.Status.Phase = v1alpha1.PhasePending
		return nil
	}
	w := &wanted{Rack: k, rack: rack, image: r.Image, pull: r.PullPolicy, logs: r.LogFormat, leaves: leaves}
	objects, err := w.objects()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := r.ensure(ctx, k, o); err != nil {
			return fmt.Errorf("make %s: %w", o.GetName(), err)
		}
	}
	pods := new(corev1.PodList)
	if err := r.Client.List(ctx, pods, client.InNamespace(k.Namespace), client.MatchingLabels{v1alpha1.LabelRack: k.Name}); err != nil {
		return err
	}
	own, err := workloadsOf(ctx, r.Client, labelled(k)...)
	if err != nil {
		return err
	}
	observe(k, rack, leaves, nodes.Items, own.say(k, pods.Items), r.Version)
	return nil
}

// leaves returns the RackLeafs of a rack in the order of its machines. It makes those that are missing, if there are
// nodes for all. A leaf that is there keeps its node.
func (r *Reconciler) leaves(ctx context.Context, k *v1alpha1.Rack, rack *rackfile.Rack, nodes []corev1.Node) ([]v1alpha1.RackLeaf, error) {
	list := new(v1alpha1.RackLeafList)
	if err := r.Client.List(ctx, list, client.InNamespace(k.Namespace), client.MatchingLabels{v1alpha1.LabelRack: k.Name}); err != nil {
		return nil, err
	}
	have := make(map[string]v1alpha1.RackLeaf)
	var taken []string
	for _, l := range list.Items {
		if err := of(k, &l); err != nil {
			return nil, err
		}
		have[l.Spec.Machine] = l
		taken = append(taken, l.Spec.Node)
	}
	free := slices.DeleteFunc(fit(nodes, k.Spec.NodeSelector), func(name string) bool { return slices.Contains(taken, name) })
	var out []v1alpha1.RackLeaf
	if len(have)+len(free) < int(k.Spec.Nodes) {
		for _, l := range have {
			out = append(out, l)
		}
		return append(out, make([]v1alpha1.RackLeaf, len(free))...), nil // too few: nothing is made
	}
	for n := range int(k.Spec.Nodes) {
		l, ok := have[rackspec.Machine(n)]
		if !ok {
			l = leafOf(k, rack, n, free[0], r.Version)
			free = free[1:]
			if err := controllerutil.SetControllerReference(k, &l, r.Scheme); err != nil {
				return nil, err
			}
			if err := r.Client.Create(ctx, &l); err != nil {
				return nil, err
			}
			r.Events.Eventf(k, nil, corev1.EventTypeNormal, "Placed", "Place", "%s is on node %s", l.Spec.Leaf, l.Spec.Node)
		}
		if l.Spec.Version != r.Version { // of an older operator: leaves that start from now on are of this version
			before := l.DeepCopy()
			l.Spec.Version = r.Version
			if err := r.Client.Patch(ctx, &l, client.MergeFrom(before)); err != nil {
				return nil, err
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// of returns an error if an object has not been made for this very Rack, as one that a deleted Rack of the same name
// has left.
func of(k *v1alpha1.Rack, o client.Object) error {
	if metav1.IsControlledBy(o, k) {
		return nil
	}
	return fmt.Errorf("%T %s is not of this Rack: wait until what was of a former Rack is gone, or delete it", o, o.GetName())
}

// leafOf makes the RackLeaf of machine n.
func leafOf(k *v1alpha1.Rack, rack *rackfile.Rack, n int, node, version string) v1alpha1.RackLeaf {
	leaf := rackspec.Leaf(n)
	return v1alpha1.RackLeaf{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name + "-" + leaf, Labels: map[string]string{v1alpha1.LabelRack: k.Name}},
		Spec: v1alpha1.RackLeafSpec{
			Rack: k.Name, Node: node, Leaf: leaf, Machine: rackspec.Machine(n), Version: version, Hosts: rackspec.HostsAt(rack, leaf),
		},
	}
}

// fit returns the names of the nodes on which a leaf may be, in their order.
func fit(nodes []corev1.Node, selector map[string]string) (names []string) {
	for i := range nodes {
		n := &nodes[i]
		ok := works(n) && offers(n) && !n.Spec.Unschedulable
		for key, value := range selector {
			ok = ok && n.Labels[key] == value
		}
		for _, t := range n.Spec.Taints {
			ok = ok && t.Effect == corev1.TaintEffectPreferNoSchedule
		}
		if ok {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// works reports whether a node is ready.
func works(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// offers reports whether the plugin of racks works on a node: it offers NICs for users' Pods, and ports for the leaf and
// the hosts.
func offers(n *corev1.Node) bool {
	for _, name := range []corev1.ResourceName{v1alpha1.ResourceNIC, v1alpha1.ResourcePort} {
		if q := n.Status.Allocatable[name]; q.IsZero() {
			return false
		}
	}
	return true
}

// ensure makes an object if it is missing. Of what is there, only the template of leaves and hosts is brought up to date:
// their Pods stay as they are until someone deletes them.
func (r *Reconciler) ensure(ctx context.Context, k *v1alpha1.Rack, want client.Object) error {
	if err := controllerutil.SetControllerReference(k, want, r.Scheme); err != nil {
		return err
	}
	switch want.(type) {
	case *appsv1.DaemonSet, *appsv1.StatefulSet:
	default: // the operator may make the others, and read none: they have names that no other Rack's have
		return ignoreExists(r.Client.Create(ctx, want))
	}
	have := want.DeepCopyObject().(client.Object)
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		err := r.Client.Create(ctx, want)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// One without the label of a rack, which is not in the cache, or one that has just been made.
		if err := r.Direct.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
			return client.IgnoreNotFound(err)
		}
		return of(k, have)
	case err != nil:
		return err
	}
	if err := of(k, have); err != nil {
		return err
	}
	before := have.DeepCopyObject().(client.Object)
	if !refresh(have, want) {
		return nil
	}
	return r.Client.Patch(ctx, have, client.MergeFrom(before))
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// refresh gives have the template of want if that was made from another one, and reports whether it has.
func refresh(have, want client.Object) bool {
	if have.GetAnnotations()[annotationMade] == want.GetAnnotations()[annotationMade] {
		return false
	}
	switch h := have.(type) {
	case *appsv1.DaemonSet:
		h.Spec.Template = want.(*appsv1.DaemonSet).Spec.Template
	case *appsv1.StatefulSet:
		h.Spec.Template = want.(*appsv1.StatefulSet).Spec.Template
	default:
		return false
	}
	have.SetAnnotations(want.GetAnnotations())
	return true
}

// write writes the status if it has changed, and an event if the phase has.
func (r *Reconciler) write(ctx context.Context, before, k *v1alpha1.Rack) error {
	if before.Status.Phase != k.Status.Phase {
		kind, note := corev1.EventTypeNormal, ""
		for _, c := range k.Status.Conditions {
			if c.Status != metav1.ConditionTrue && note == "" {
				note = ": " + c.Message
			}
		}
		if k.Status.Phase == v1alpha1.PhaseDegraded || k.Status.Phase == v1alpha1.PhaseRefused {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(k, nil, kind, string(k.Status.Phase), "Observe", "the rack is %s%s", k.Status.Phase, note)
	}
	return r.Client.Status().Patch(ctx, k, client.MergeFrom(before))
}

// set sets a condition.
func set(k *v1alpha1.Rack, kind string, ok bool, reason, text string) {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	const most = 32 << 10 // bytes of a message
	meta.SetStatusCondition(&k.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: text[:min(len(text), most)], ObservedGeneration: k.Generation,
	})
}
