//! Named tokens: what is stored of them, how they end, and how many there may be.

use store::{MAX_TOKENS, NewToken, RestoreOptions, Store, StoreError, check_backup};

use crate::world::{NOW, everywhere};

fn token(id: &str, name: &str) -> NewToken {
    NewToken {
        token_id: id.to_owned(),
        name: name.to_owned(),
        hash: format!("hash-of-{id}"),
        scopes: "execute,read".to_owned(),
        created_at: NOW,
        expires_at: None,
    }
}

async fn is_in_force(store: &Store, id: &str, now: i64) -> bool {
    store.token_by_hash(&format!("hash-of-{id}")).await.unwrap().unwrap().is_in_force(now)
}

#[tokio::test]
async fn a_token_is_found_by_its_hash_until_it_is_revoked_or_expires() {
    for place in everywhere().await {
        let store = &place.store;
        store.create_token(&token("a", "ada")).await.unwrap();
        store.create_token(&NewToken { expires_at: Some(NOW + 10), ..token("b", "bob") }).await.unwrap();
        assert_eq!(store.token_by_hash("hash-of-c").await.unwrap(), None);
        let found = place.reopen().await.token_by_hash("hash-of-a").await.unwrap().unwrap();
        assert_eq!((found.token_id.as_str(), found.name.as_str(), found.scopes.as_str()), ("a", "ada", "execute,read"));
        assert!(is_in_force(store, "a", NOW).await && is_in_force(store, "b", NOW + 9).await);
        assert!(!is_in_force(store, "b", NOW + 10).await);
        assert!(store.revoke_token("a", NOW + 1).await.unwrap());
        assert!(!store.revoke_token("a", NOW + 2).await.unwrap());
        assert!(!store.revoke_token("c", NOW + 2).await.unwrap());
        assert!(!is_in_force(store, "a", NOW).await);
        let listed = store.tokens().await.unwrap();
        let listed: Vec<_> = listed.iter().map(|token| (token.token_id.as_str(), token.revoked_at)).collect();
        assert_eq!(listed, [("a", Some(NOW + 1)), ("b", None)]);
    }
}

#[tokio::test]
async fn the_last_use_of_a_token_never_goes_back() {
    for place in everywhere().await {
        place.store.create_token(&token("a", "ada")).await.unwrap();
        for at in [NOW + 5, NOW + 3] {
            place.store.touch_token("a", at).await.unwrap();
            assert_eq!(place.store.tokens().await.unwrap()[0].last_used_at, Some(NOW + 5));
        }
    }
}

#[tokio::test]
async fn two_tokens_cannot_have_the_same_secret() {
    for place in everywhere().await {
        place.store.create_token(&token("a", "ada")).await.unwrap();
        let twin = NewToken { token_id: "b".to_owned(), ..token("a", "bob") };
        assert!(matches!(place.store.create_token(&twin).await, Err(StoreError::Sql(_))));
    }
}

#[tokio::test]
async fn one_token_too_many_is_refused_until_another_one_ends() {
    for place in everywhere().await.into_iter().take(1) {
        for number in 0..MAX_TOKENS {
            place.store.create_token(&token(&number.to_string(), "ada")).await.unwrap();
        }
        let refused = place.store.create_token(&token("more", "ada")).await;
        assert!(matches!(refused, Err(StoreError::TooManyTokens { limit: MAX_TOKENS })), "{refused:?}");
        assert!(place.store.revoke_token("0", NOW).await.unwrap());
        place.store.create_token(&token("more", "ada")).await.unwrap();
    }
}

#[tokio::test]
async fn a_restore_does_not_revive_a_token_that_was_revoked_after_the_backup() {
    for place in everywhere().await {
        for (id, name) in [("a", "ada"), ("b", "bob")] {
            place.store.create_token(&token(id, name)).await.unwrap();
        }
        let mut bytes = Vec::new();
        place.store.backup(&mut bytes, None).await.unwrap();
        assert!(place.store.revoke_token("a", NOW + 1).await.unwrap());
        let checked = check_backup(&mut &bytes[..]).unwrap();
        let over = RestoreOptions { replace: true, end_runs: false };
        place.store.restore(&mut &bytes[..], &checked, over, NOW + 2).await.unwrap();
        assert!(!is_in_force(&place.store, "a", NOW + 2).await);
        assert!(is_in_force(&place.store, "b", NOW + 2).await);
    }
}
