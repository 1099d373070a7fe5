package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/operator"
)

// patience is how long anything may take: the machine may have other things to do.
const patience = 3 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apiServer starts a real API server and etcd with the CRDs, and nothing else: no scheduler, no kubelet.
func apiServer(t *testing.T) (*rest.Config, client.Client) {
	t.Helper()
	bin := os.Getenv("RDMALAB_KUBE_BIN")
	if bin == "" {
		t.Skip("RDMALAB_KUBE_BIN is set by make e2e-kube")
	}
	etcd, err := exec.LookPath("etcd")
	must(t, err)
	assets := t.TempDir()
	must(t, errors.Join(os.Symlink(etcd, filepath.Join(assets, "etcd")), os.Symlink(filepath.Join(bin, "kube-apiserver"), filepath.Join(assets, "kube-apiserver"))))
	e := &envtest.Environment{
		BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience,
		CRDInstallOptions: envtest.CRDInstallOptions{Paths: []string{"../../config/crd.yaml"}, ErrorIfPathMissing: true, MaxTime: patience},
	}
	cfg, err := e.Start()
	must(t, err)
	t.Cleanup(func() { must(t, e.Stop()) })
	scheme, err := operator.Scheme()
	must(t, err)
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	return cfg, c
}

// runs starts the operator; the result stops it.
func runs(t *testing.T, cfg *rest.Config) (stop func()) {
	t.Helper()
	return runsAs(t, cfg, "v1")
}

// runsAs starts the operator of a version; the result stops it.
func runsAs(t *testing.T, cfg *rest.Config, version string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operator.Run(ctx, cfg, operator.Config{Image: "image:1", Version: version, Probes: "0"})
	}()
	return func() {
		cancel()
		must(t, <-done)
	}
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

const hosts = "hosts:\n  - {name: \"cn[0-1]\", role: compute}\n  - {name: ms0, role: memory}\n"

func rackOf(name, text string) *v1alpha1.Rack {
	return &v1alpha1.Rack{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1alpha1.RackSpec{Nodes: 2, Rack: text}}
}

// nodeOf makes a node, which offers NICs.
func nodeOf(t *testing.T, c client.Client, name string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	must(t, c.Create(t.Context(), n))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{v1alpha1.ResourceNIC: resource.MustParse("64"), v1alpha1.ResourcePort: resource.MustParse("64")}
	must(t, c.Status().Update(t.Context(), n))
	n.Spec.Taints = nil // without a kubelet no process takes the first one away
	must(t, c.Update(t.Context(), n))
}

// gone returns nil if err says that there is no such object.
func gone(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errors.New("it is still there")
	}
	return err
}

func none(n int) error {
	if n > 0 {
		return fmt.Errorf("there are still %d", n)
	}
	return nil
}

// podOf makes a Pod with the label of rack r0 that is ready. owner has made it, as the cluster's controllers would; nil: it has no owner.
func podOf(t *testing.T, c client.Client, owner client.Object, name, node string, labels map[string]string) {
	t.Helper()
	labels[v1alpha1.LabelRack] = "r0"
	meta := metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}
	if owner != nil {
		must(t, controllerutil.SetControllerReference(owner, &meta, c.Scheme()))
	}
	p := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64),
	}}
	must(t, c.Create(t.Context(), p))
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must(t, c.Status().Update(t.Context(), p))
}
